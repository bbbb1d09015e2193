"""What the kernels did, for ``FlopCounterMode``, which sees torch operators only: while there are ``watchers``, each kernel
call also runs an operator that does nothing and says how many multiply-adds the kernel did.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _get_dispatch_mode, _TorchDispatchModeKey
from torch._C import _len_torch_dispatch_stack as watchers
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import register_flop_formula

from wirebound.ops.backend import Backend
from wirebound.ops.image_shapes import StemShape
from wirebound.ops.layer_shapes import ConvWindow, Recurrence

__all__ = ["Counted", "watchers"]

_library = torch.library.Library("wirebound", "DEF")
_library.define("multiply_add(Tensor x, int count) -> ()")
_library.impl("multiply_add", lambda x, count: None, "CompositeExplicitAutograd")


@register_flop_formula(torch.ops.wirebound.multiply_add)  # type: ignore[untyped-decorator]
def _flops(x_shape: Any, count: int, **kwargs: Any) -> int:
    return 2 * count


def _conv(x: Tensor, theta: Tensor, window: ConvWindow, passes: int) -> tuple[Tensor, int]:
    return x, x.shape[0] * window.out_size(x.shape[2], 0) * window.out_size(x.shape[3], 1) * theta.numel() * passes


def _stem(x: Tensor, shape: StemShape) -> tuple[Tensor, int]:
    outputs = x.shape[0] * shape.out_size(x.shape[2]) * shape.out_size(x.shape[3])
    return x, outputs * shape.out_channels * shape.in_channels * shape.kernel**2


def _recurrent(cell: Recurrence, x: Tensor, passes_ih: int, passes_hh: int) -> tuple[Tensor, int]:
    samples = x.shape[0] * x.shape[1] if cell.lengths is None else int(cell.lengths.sum())
    return x, samples * (passes_ih * cell.theta_ih.numel() + passes_hh * cell.theta_hh.numel())


def _all(each: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, int]:
    return each[0][0], sum(count for _, count in each)


# An input of the kernel and its multiply-adds, from the arguments of each method of a backend that works on layers.
_WORK: dict[str, Callable[..., tuple[Tensor, int]]] = {
    "linear_forward": lambda x, theta, *rest: (x, x.shape[0] * theta.numel()),
    "linear_backward": lambda x, dy, theta, index, *need: (x, x.shape[0] * theta.numel() * sum(need)),
    "csr_forward": lambda rows, *rest: (rows.values, rows.values.numel()),
    "csr_backward": lambda rows, *rest: (rows.values, rows.values.numel()),
    "conv2d_forward": lambda x, theta, index, window, bias: _conv(x, theta, window, 1),
    "conv2d_backward": lambda x, dy, theta, index, window, *need: _conv(x, theta, window, sum(need)),
    "stem_forward": lambda x, weight, bias, shape: _stem(x, shape),
    "stem_backward": lambda x, kept, dy, shape: _stem(x, shape),
    "recurrent_forward_each": lambda calls: _all([_recurrent(cell, x, 1, 1) for cell, x, *_ in calls]),
    "recurrent_backward_each": lambda calls: _all([_recurrent(cell, x, 1 + rest[-2], 2) for cell, x, *rest in calls]),
}


class Counted:
    """A backend whose work on layers is noted; for use while there are ``watchers()``."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._backend, name)
        if name not in _WORK:
            return method

        def counted(*arguments: Any) -> Any:
            if _get_dispatch_mode(_TorchDispatchModeKey.FAKE) is not None:  # whoever watches sees all operators of a fake device
                return method(*arguments)
            torch.ops.wirebound.multiply_add(*_WORK[name](*arguments))
            with _disable_current_modes():  # a backend may use torch's own products, which would count again
                return method(*arguments)

        return counted
