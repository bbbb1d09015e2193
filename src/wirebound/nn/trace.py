"""Who sees the operators of a layer; and sparse layers by plain torch operators, where registered ones would not do.

``torch.compile``, ``torch.export`` and ``make_fx`` get registered operators (``traced.py``). For ``torch.jit.trace``, ONNX
and ``torch.func``, and only there, a sparse layer is its dense twin: the matrix is made from θ by operators with shapes that
do not depend on the wiring, so that the recorded graph stays right when connections move."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, fx, nn
from torch._C import _are_functorch_transforms_active as transforms_active
from torch._C import _get_dispatch_mode, _get_tracing_state, _len_torch_dispatch_stack, _TorchDispatchModeKey
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from wirebound.ops.layout import rows_of
from wirebound.wiring import Wiring, mapping

P = ParamSpec("P")
R = TypeVar("R")
_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)  # from torch 2.7 on
_RECORDERS = (_TorchDispatchModeKey.FUNCTIONAL, _TorchDispatchModeKey.PROXY)


def tracing() -> bool:
    """Whether operators are recorded or transformed instead of run and forgotten."""
    if torch.compiler.is_compiling():
        return True
    if _get_tracing_state() is not None or transforms_active():
        return True
    return _len_torch_dispatch_stack() > 0 and any(_get_dispatch_mode(key) is not None for key in _RECORDERS)


def watched_over() -> bool:
    """Whether anyone sees the operators that run: recorders, and modes that only count or log."""
    if torch.compiler.is_compiling():
        return True
    return _len_torch_dispatch_stack() > 0 or _get_tracing_state() is not None


def recorded(x: Any, wiring: Wiring | None = None) -> bool:
    """Whether a layer has to go by torch operators for this input, or this θ: registered ones or plain ones.

    Where the wiring is fake too, the layer runs as it would run on a device.
    """
    if tracing():
        return True
    if type(x) is Tensor:
        return False
    if isinstance(x, FakeTensor):
        return wiring is None or not isinstance(wiring._parameters.get("theta"), FakeTensor)
    return isinstance(x, FunctionalTensor | fx.Proxy)


def in_graph(x: Any) -> bool:
    """Where ``recorded``: whether registered operators are wanted, because a graph of any operators is being made."""
    if torch.compiler.is_compiling() and not _exporting():
        return True
    return not (isinstance(x, fx.Proxy) or torch.onnx.is_in_onnx_export() or _get_tracing_state() or transforms_active())


def leaf(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The module as one node of the graph that ``torch.fx`` is making, as torch's own layers are."""
    tracer: Any = next(value.tracer for value in (*args, *kwargs.values()) if isinstance(value, fx.Proxy))
    return tracer.create_proxy("call_module", tracer.path_of_module(module), args, kwargs)


def one_node(forward: Callable[P, R]) -> Callable[P, R]:
    """A forward method that is one node for ``torch.fx`` (``leaf``)."""

    @functools.wraps(forward)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if any(isinstance(value, fx.Proxy) for value in (*args[1:], *kwargs.values())):
            return cast(R, leaf(*cast(Any, args), **cast(Any, kwargs)))
        return forward(*args, **kwargs)

    return called


def plain_matrix(wiring: Wiring, layer_id: int) -> Tensor:
    if _get_tracing_state() is not None and torch.onnx.is_in_onnx_export():
        state, put = _get_tracing_state(), torch._C._set_tracing_state  # type: ignore[attr-defined]
        put(None)
        try:
            return wiring.layer_dense(layer_id)  # a constant: ONNX has no need of θ, nor of all these operators
        finally:
            put(state)
    packed_rows, theta = wiring.packed_rows, cast(Tensor, wiring.theta)
    shape, first = wiring.layers[layer_id], wiring.geometry.column_start[layer_id]
    # The column of a connection is the number of later columns that start at or before it.
    starts = packed_rows.new_zeros(packed_rows.numel() + 1, dtype=torch.int64)
    inner = wiring.colptr[1:-1]
    columns = starts.scatter_add(0, inner, torch.ones_like(inner))[:-1].cumsum(0) - first
    others = (columns < 0) | (columns >= shape.n_in)
    # Connections of other layers go to a place behind the matrix, which is cut off.
    places = (rows_of(packed_rows) * shape.n_in + columns).masked_fill(others, shape.possible)
    if wiring.sign_bound:
        theta = torch.where(theta >= 0, theta, 0.0)  # what is below 0 is dormant
    dense = theta.new_zeros(shape.possible + 1).scatter(0, places, mapping.weights(theta, packed_rows))
    return dense[:-1].view(shape.n_out, shape.n_in)


def by_operators(layer: Any, function: Callable[..., Any], x: Any, *rest: Any) -> Any:
    """``function`` of a recorded input, the layer's weight and bias, and the rest, in the precision of the parameters."""
    if isinstance(x, fx.Proxy):
        return leaf(layer, x)
    weight = layer.plain_weight()
    if not torch.is_autocast_enabled(x.device.type):
        return function(x, weight, layer.bias, *rest)
    dtype = torch.get_autocast_dtype(x.device.type)
    with torch.autocast(x.device.type, enabled=False):
        y = function(x.to(weight.dtype), weight, layer.bias, *rest)
    return y.to(dtype) if weight.element_size() >= 4 else y


def recurrent_by_operators(layer: Any, x: Any, state: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor]]:
    batched = x.dim() == 3
    if not batched:
        x = x.unsqueeze(1)
        state = [None if s is None else s.unsqueeze(1) for s in state]
    batch_first = batched and layer.batch_first
    zeros = x.new_zeros(len(layer.matrix_names) // 2, x.shape[0 if batch_first else 1], layer.hidden_size)
    weights: list[Tensor] = []
    for pair in zip(layer.matrix_names[::2], layer.matrix_names[1::2], strict=True):
        weights += (layer._modules[name].plain_weight() for name in pair)
        if layer.bias:
            weights += (getattr(layer, name.replace("weight", "bias")) for name in pair)
    starts = tuple(zeros if s is None else s for s in state)
    dropout = layer.dropout if layer.training else 0.0
    settings = (layer.bias, layer.num_layers, dropout, layer.training, layer.bidirectional, batch_first)
    y, *ends = getattr(torch, layer.kind)(x, starts if len(starts) > 1 else starts[0], weights, *settings)
    return (y, ends) if batched else (y.squeeze(1), [end.squeeze(1) for end in ends])
