"""Sparse layers in a graph that is being made (``torch.compile``, ``torch.export``, ``make_fx``): registered operators.

They take the arrays of the whole wiring, which keep their shapes while connections move, so a graph stays right and is
never made again. A step that has to leave the gradient of dormant connections behind (RigL's) cannot be functional: there
the layer runs outside of the graph.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from wirebound.nn.inputs import autocast_dtype
from wirebound.ops.registered import conv2d, linear, recurrent
from wirebound.ops.registered.conv import numbers_of
from wirebound.wiring import Wiring

_Where = tuple[Tensor, Tensor, Tensor]


def arrays_of(wiring: Wiring, layer_id: int) -> _Where:
    """θ, rows and column pointers of the wiring of a layer."""
    theta = cast(Tensor, wiring._parameters["theta"])
    rows, pointers = cast(tuple[Tensor, Tensor], (wiring._buffers["packed_rows"], wiring._buffers["colptr"]))
    return theta.detach() if wiring.is_frozen(layer_id) else theta, rows, pointers


def is_watched(wiring: Wiring) -> bool:
    """Whether the next backward pass has to leave the gradient of dormant connections behind."""
    return wiring.watch is not None


@_disable_dynamo  # torch.compiler.disable would import all of the compiler at once
def run_outside(forward: Any, *args: Any) -> Any:
    """A layer outside of the graph."""
    return forward(*args)


_WHY = "a packed sequence, or a step that grows connections by the gradient of dormant ones, cannot be part of a graph"
run_outside.__dict__.update(_torchdynamo_disable=True, _torchdynamo_disable_msg=f"{_WHY}: use fullgraph=False, or lengths=")


def settle(x: Tensor, theta: Tensor, what: str) -> Tensor:
    """The input in the precision of θ, as in eager calls."""
    if x.dtype is theta.dtype:
        return x
    if not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"the dtype of {what} (={x.dtype}) must be that of the layer (={theta.dtype})")
    return x.to(theta.dtype)


def as_autocast(y: Tensor, theta: Tensor) -> Tensor:
    """The result in the precision that autocast asks for."""
    dtype = autocast_dtype(y.device, theta)
    return y if dtype is None else y.to(dtype)


def traced_linear(layer: Any, x: Tensor) -> Tensor:
    wiring, layer_id = layer.fast_wiring, layer.layer_id
    theta, packed_rows, colptr = arrays_of(wiring, layer_id)
    if x.shape[-1] != layer.in_features:
        raise ValueError(f"the last dimension of the input (={x.shape[-1]}) must be in_features (={layer.in_features})")
    first, rows = wiring.geometry.column_start[layer_id], settle(x, theta, "the input").reshape(-1, layer.in_features)
    y = linear(rows, theta, packed_rows, colptr, layer.bias, first, layer.out_features, wiring.sign_bound)
    return as_autocast(y.view(*x.shape[:-1], layer.out_features), theta)


def traced_planes(layer: Any, x: Tensor) -> Tensor:
    """The convolution of planes [batch, channels, height, width]."""
    wiring, layer_id = layer.fast_wiring, layer.layer_id
    theta, packed_rows, colptr = arrays_of(wiring, layer_id)
    first, window = wiring.geometry.column_start[layer_id], numbers_of(layer.window)
    y = conv2d(settle(x, theta, "the input"), theta, packed_rows, colptr, layer.bias, first, window, wiring.sign_bound)
    return as_autocast(y, theta)


def traced_direction(
    kind: str, hidden: int, matrices: Sequence[Any], biases: Sequence[Tensor | None], x: Tensor, h_0: Tensor, c_0: Tensor | None,
    lengths: Tensor | None, reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(y, h_n, c_n) of one direction of a recurrent layer, x being [steps, batch, features]."""
    (ih, first_ih), (hh, first_hh) = (
        (arrays_of(m.fast_wiring, m.layer_id), m.fast_wiring.geometry.column_start[m.layer_id]) for m in matrices
    )
    bound, keep = matrices[0].fast_wiring.sign_bound or matrices[1].fast_wiring.sign_bound, torch.is_grad_enabled()
    settings = (first_ih, first_hh, kind, hidden, reverse, bound, keep)
    y, h_n, c_n, _ = recurrent(x, h_0, c_0, *ih, biases[0], *hh, biases[1], lengths, *settings)
    return y, h_n, c_n


def traced_lengths(x: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Steps of each sequence of x [time, batch, features]. A graph cannot look at them: those beyond the input end with it."""
    if lengths is not None and mask is not None:
        raise ValueError("at most one of lengths and mask may be given")
    if lengths is None and mask is None:
        return None
    steps = mask.sum(1) if mask is not None else cast(Tensor, lengths)
    return steps.to(torch.int64).clamp(0, x.shape[0])
