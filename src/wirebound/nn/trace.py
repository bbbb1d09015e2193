"""Sparse layers by plain torch operators, for whoever records operators: our kernels leave no trace in a graph.

``torch.jit.trace``, ``torch.onnx.export``, ``torch.export``, ``make_fx`` and fake tensors see the operators that run, and
the transforms of ``torch.func`` know how each is transformed. In them, and only there, a sparse layer is its dense twin:
the matrix is made from θ by operators with shapes that do not depend on the wiring, so that the recorded graph stays right
when connections move.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._C import _get_dispatch_mode, _get_tracing_state, _len_torch_dispatch_stack, _TorchDispatchModeKey
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from wirebound.nn.node import transforms_active
from wirebound.ops import ConvWindow
from wirebound.ops.layout import rows_of
from wirebound.wiring import Wiring, mapping

_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)  # from torch 2.7 on

P = ParamSpec("P")
R = TypeVar("R")

_RECORDERS = (_TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.FUNCTIONAL, _TorchDispatchModeKey.PROXY)
_INSTEAD = "use wb.to_dense(model), or wirebound.export.to_onnx"


def tracing() -> bool:
    """Whether operators are recorded or transformed, or only their shapes computed, instead of run and forgotten."""
    if torch.compiler.is_dynamo_compiling():  # torch.compile leaves sparse layers to the kernels
        return _exporting()
    if _get_tracing_state() is not None or transforms_active():
        return True
    return _len_torch_dispatch_stack() > 0 and any(_get_dispatch_mode(key) is not None for key in _RECORDERS)


def watched_over() -> bool:
    """Whether anyone sees the operators that run: recorders, and modes that only count or log."""
    if torch.compiler.is_dynamo_compiling():
        return _exporting()
    return _len_torch_dispatch_stack() > 0 or _get_tracing_state() is not None


def recorded(x: Any) -> bool:
    """Whether a layer has to go by torch operators for this input, or this θ."""
    return tracing() or (type(x) is not Tensor and isinstance(x, FakeTensor | FunctionalTensor | fx.Proxy))


def leaf(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The module as one node of the graph that ``torch.fx`` is making, as torch's own layers are."""
    tracer: Any = next(value.tracer for value in (*args, *kwargs.values()) if isinstance(value, fx.Proxy))
    return tracer.create_proxy("call_module", tracer.path_of_module(module), args, kwargs)


def one_node(forward: Callable[P, R]) -> Callable[P, R]:
    """A forward method that is one node for ``torch.fx`` (``leaf``)."""

    @functools.wraps(forward)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if any(isinstance(value, fx.Proxy) for value in (*args, *kwargs.values())):
            return cast(R, leaf(*cast(Any, args), **cast(Any, kwargs)))
        return forward(*args, **kwargs)

    return called


def plain_matrix(wiring: Wiring, part: int) -> Tensor:
    """The dense matrix [n_out, n_in] of one part by torch operators, from which gradients flow to θ."""
    if _get_tracing_state() is not None and torch.onnx.is_in_onnx_export():
        return _constant(lambda: wiring.layer_dense(part))  # ONNX has no need of θ, nor of all these operators
    packed_rows, colptr = wiring.packed_rows, wiring.colptr
    theta: Tensor = wiring.theta
    shape, first = wiring.layers[part], wiring.geometry.column_start[part]
    # The column of a connection is the number of later columns that start at or before it.
    starts = packed_rows.new_zeros(packed_rows.numel() + 1, dtype=torch.int64)
    inner = colptr[1:-1]
    columns = starts.scatter_add(0, inner, torch.ones_like(inner))[:-1].cumsum(0) - first
    others = (columns < 0) | (columns >= shape.n_in)
    # Connections of other layers go to a place behind the matrix, which is cut off.
    places = (rows_of(packed_rows) * shape.n_in + columns).masked_fill(others, shape.possible)
    if wiring.sign_bound:
        theta = torch.where(theta >= 0, theta, 0.0)  # what is below 0 is dormant
    dense = theta.new_zeros(shape.possible + 1).scatter(0, places, mapping.weights(theta, packed_rows))
    return dense[:-1].view(shape.n_out, shape.n_in)


def _constant(make: Callable[[], Tensor]) -> Tensor:
    """What ``make`` gives, as a constant of the graph that is being traced."""
    state, put = _get_tracing_state(), torch._C._set_tracing_state  # type: ignore[attr-defined]
    put(None)
    try:
        return make()
    finally:
        put(state)


def _in_own_precision(function: Callable[..., Any], x: Tensor, weight: Tensor, *rest: Any) -> Any:
    """Sparse layers compute in the precision of their parameters, also under autocast."""
    if not torch.is_autocast_enabled(x.device.type):
        return function(x, weight, *rest)
    with torch.autocast(x.device.type, enabled=False):
        return function(x.to(weight.dtype), weight, *rest)


def linear_by_operators(layer: Any, x: Any) -> Any:
    """``SparseLinear`` for a recorded input."""
    if isinstance(x, fx.Proxy):
        return leaf(layer, x)
    return _in_own_precision(F.linear, x, layer.plain_weight(), layer.bias)


def conv_by_operators(layer: Any, x: Any) -> Any:
    """``SparseConv1d`` and ``SparseConv2d`` for a recorded input."""
    if isinstance(x, fx.Proxy):
        return leaf(layer, x)
    window: ConvWindow = layer.window
    skipped = 2 - layer.dimensions  # inside, one dimension is two
    margins = layer._margins
    if margins is None:
        ends = list(zip(window.before, window.after, strict=True))[skipped:]
        margins = tuple(size for pair in reversed(ends) for size in pair)
    if any(margins):
        x = F.pad(x, margins, "constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    convolve = F.conv1d if layer.dimensions == 1 else F.conv2d
    stride, dilation = window.stride[skipped:], window.dilation[skipped:]
    return _in_own_precision(convolve, x, layer.plain_weight(), layer.bias, stride, 0, dilation, window.groups)


def volume_by_operators(layer: Any, x: Tensor) -> Tensor:
    """``SparseConv3d`` for a recorded input."""
    if any(layer._margins):
        x = F.pad(x, layer._margins, "constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    sizes = (layer.stride, 0, layer.dilation, layer.groups)
    return cast(Tensor, _in_own_precision(F.conv3d, x, layer.plain_weight(), layer.bias, *sizes))


def transposed_by_operators(layer: Any, x: Tensor, extra: Sequence[int]) -> Tensor:
    """A transposed convolution for a recorded input; ``extra`` is its output padding."""
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[layer.dimensions - 1]
    sizes = (layer.stride, layer.padding, extra, layer.groups, layer.dilation)
    return cast(Tensor, _in_own_precision(convolve, x, layer.plain_weight(), layer.bias, *sizes))


def cell_by_operators(layer: Any, x: Tensor, state: Sequence[Tensor | None]) -> list[Tensor]:
    """The states after one step of a cell, for a recorded input."""
    functions: dict[str, Any] = {
        "lstm": torch.lstm_cell,
        "gru": torch.gru_cell,
        "rnn_tanh": torch.rnn_tanh_cell,
        "rnn_relu": torch.rnn_relu_cell,
    }
    batched = x.dim() == 2
    if not batched:
        x = x.unsqueeze(0)
        state = [None if s is None else s.unsqueeze(0) for s in state]
    zeros = x.new_zeros(x.shape[0], layer.hidden_size)
    starts = [zeros if s is None else s for s in state]
    weights = [layer._modules[name].plain_weight() for name in layer.matrix_names]
    biases = [layer._parameters.get(name.replace("weight", "bias")) for name in layer.matrix_names]
    ends = functions[layer.kind](x, starts[0] if len(starts) == 1 else starts, *weights, *biases)
    ends = ends if isinstance(ends, tuple) else (ends,)
    return list(ends) if batched else [end.squeeze(0) for end in ends]


def recurrent_by_operators(
    layer: Any, x: Any, state: Sequence[Tensor | None], lengths: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """Output and last states of a recurrent layer for a recorded input."""
    functions: dict[str, Any] = {
        "lstm": torch.lstm,
        "gru": torch.gru,
        "rnn_tanh": torch.rnn_tanh,
        "rnn_relu": torch.rnn_relu,
    }
    run = functions[layer.kind]
    if lengths is not None or mask is not None:
        kind = type(layer).__name__
        raise RuntimeError(f"{kind} with lengths= or mask= cannot be traced or exported: {_INSTEAD}, without them")
    batched = x.dim() == 3
    if not batched:
        x = x.unsqueeze(1)
        state = [None if s is None else s.unsqueeze(1) for s in state]
    batch_first = batched and layer.batch_first
    rows = len(layer.matrix_names) // 2
    zeros = x.new_zeros(rows, x.shape[0 if batch_first else 1], layer.hidden_size)
    weights: list[Tensor] = []
    for ih, hh in zip(layer.matrix_names[::2], layer.matrix_names[1::2], strict=True):
        weights += (layer._modules[name].plain_weight() for name in (ih, hh))
        if layer.bias:
            weights += (getattr(layer, name.replace("weight", "bias")) for name in (ih, hh))
    dropout = layer.dropout if layer.training else 0.0
    starts = tuple(zeros if s is None else s for s in state)
    y, *ends = run(
        x,
        starts if len(starts) > 1 else starts[0],
        weights,
        layer.bias,
        layer.num_layers,
        dropout,
        layer.training,
        layer.bidirectional,
        batch_first,
    )
    return (y, ends) if batched else (y.squeeze(1), [end.squeeze(1) for end in ends])
