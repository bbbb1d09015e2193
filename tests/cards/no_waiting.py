"""A graphics card that is not there: tensors on it are fake, those on the CPU are real, and whoever waits is told.

Builds of torch without CUDA know nothing about a device of that name, not even a fake one. Their place for other people's
devices does: there it is called "card", and wirebound takes the same way as for "cuda".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import wirebound as wb

aten = torch.ops.aten


DEVICE = "cuda" if torch.backends.cuda.is_built() else "card"


class WaitedError(Exception):
    """An operator asked the device for a number, or for a size that depends on its numbers."""


_ASKS = {  # operators whose result the host must wait for
    aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.bincount.default,
    aten.unique_consecutive.default, aten._unique2.default, aten.unique_dim.default, aten.equal.default, aten.is_nonzero.default,
}  # fmt: skip


class NoWaiting(TorchDispatchMode):
    """Raises where a fake tensor of another device is waited for, or copied to the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        fake = [leaf for leaf in leaves if isinstance(leaf, FakeTensor)]
        target = kwargs.get("device")
        if not fake and (target is None or torch.device(target).type == "cpu"):
            with _disable_current_modes():  # the CPU is there
                return func(*args, **kwargs)
        if fake and func in _ASKS:
            raise WaitedError(f"{func} of {[tuple(t.shape) for t in fake]} on {fake[0].device}")
        if fake and func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
            raise WaitedError(f"{func} without output_size")
        indexed = fake and func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
        if indexed and any(isinstance(i, Tensor) and i.dtype is torch.bool for i in args[1]):
            raise WaitedError(f"{func} with a mask")
        if fake and func is aten._to_copy.default and target is not None and torch.device(target).type == "cpu":
            raise WaitedError(f"{func} to the CPU")
        if func is aten.copy_.default and isinstance(args[1], FakeTensor) and not isinstance(args[0], FakeTensor):
            raise WaitedError(f"{func} to the CPU")
        return func(*args, **kwargs)


class NoDevice(FakeTensorMode):
    """Fake tensors of a device that is never there."""

    @property
    def avoid_device_init(self) -> bool:
        return True


class Card:
    """The fake device: what is on it, and the way there."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode

    def tensor(self, tensor: Tensor) -> Tensor:
        """A tensor of the same kind on the card, without numbers."""
        with _disable_current_modes():
            outline = torch.empty_like(tensor, device="meta")
        return FakeTensor(self.mode, outline, torch.device(DEVICE, 0))

    def model(self, model: nn.Module) -> nn.Module:
        """The model on the card, in place, as ``.to()`` puts it there; what wirings know of their start they keep."""
        known = [(wiring, wiring.bounds, wiring.origin) for wiring in wb.wirings(model)]
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and not isinstance(parameter, FakeTensor):
                    module._parameters[name] = nn.Parameter(self.tensor(parameter), parameter.requires_grad)
            for name, buffer in module._buffers.items():
                if buffer is not None and not isinstance(buffer, FakeTensor) and name not in ("identity", "initial_counts"):
                    module._buffers[name] = self.tensor(buffer)
        for wiring, bounds, _ in known:
            wiring.__dict__.update(_bounds=bounds, _trusted=None, _indices={})
        return model


@contextmanager
def fake_card() -> Iterator[Card]:
    """Within the block, this is a device without numbers that nobody may wait for."""
    with NoDevice(allow_non_fake_inputs=True) as mode, NoWaiting():
        yield Card(mode)
