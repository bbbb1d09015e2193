"""What the kernels did, for those who count: ``FlopCounterMode`` sees torch operators only, and they are none.

While there are ``watchers`` of the operators that run, each kernel call also runs one that does nothing and says how
many multiply-adds the kernel did; its flop formula is twice that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch.utils.flop_counter import register_flop_formula

from wirebound.ops.backend import Backend
from wirebound.ops.layer_shapes import ConvWindow, Recurrence

watchers = _len_torch_dispatch_stack

_library = torch.library.Library("wirebound", "DEF")
_library.define("multiply_add(Tensor x, int count) -> ()")
_library.impl("multiply_add", lambda x, count: None, "CompositeExplicitAutograd")


@register_flop_formula(torch.ops.wirebound.multiply_add)  # type: ignore[untyped-decorator]
def _flops(x_shape: Any, count: int, **kwargs: Any) -> int:
    return 2 * count


def _conv_outputs(x: Tensor, window: ConvWindow) -> int:
    return x.shape[0] * window.out_size(x.shape[2], 0) * window.out_size(x.shape[3], 1)


def _of_backward(cell: Recurrence, x: Tensor, need_dx: bool) -> int:
    return cell.samples(x) * ((1 + need_dx) * cell.theta_ih.numel() + 2 * cell.theta_hh.numel())


# An input of the kernel and its multiply-adds, from the arguments of each method of a backend that works on layers.
_WORK: dict[str, Callable[..., tuple[Tensor, int]]] = {
    "linear_forward": lambda x, theta, *rest: (x, x.shape[0] * theta.numel()),
    "linear_backward": lambda x, dy, theta, index, *need: (x, x.shape[0] * theta.numel() * sum(need)),
    "conv2d_forward": lambda x, theta, index, window, bias: (x, _conv_outputs(x, window) * theta.numel()),
    "conv2d_backward": lambda x, dy, theta, index, window, *need: (x, _conv_outputs(x, window) * theta.numel() * sum(need)),
    "recurrent_forward": lambda cell, x, *rest: (x, cell.samples(x) * (cell.theta_ih.numel() + cell.theta_hh.numel())),
    "recurrent_backward": lambda cell, x, *rest: (x, _of_backward(cell, x, need_dx=rest[-2])),
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
            torch.ops.wirebound.multiply_add(*_WORK[name](*arguments))
            return method(*arguments)

        return counted
