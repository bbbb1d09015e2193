"""What may go into a sparse layer, since kernels get addresses, and the autograd node that a layer of one matrix is."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from wirebound.ops.faults import DormantThetaError
from wirebound.wiring.trust import is_plain

_any_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled  # of any device


def direct(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without looking for function transforms, which takes longer than a small layer's arithmetic."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc, no-any-return]


def settle_input(x: Tensor, theta: Tensor, layer: object, what: str = "the input", *, pieces: bool = False) -> Tensor:
    """The input as a kernel may read it: plain, on the device and of the dtype of θ; or an error that says what it is.

    Under autocast another floating dtype is converted, or left to ``sparse_product``, which converts ``pieces`` of it.
    """
    if type(x) is not Tensor and not is_plain(x) and not (isinstance(x, FakeTensor) and isinstance(theta, FakeTensor)):
        what = f"{type(layer).__name__} takes tensors with numbers in memory, not {type(x).__name__}"
        raise TypeError(f"{what}: use wb.to_dense(model) where tensors are fake, traced or sharded")
    if x.device != theta.device:
        raise ValueError(f"{what} is on {x.device}, {type(layer).__name__} on {theta.device}: move one of them with .to()")
    if x.dtype is not theta.dtype:
        if not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"the dtype of {what} (={x.dtype}) must be that of the layer (={theta.dtype})")
        x = x if pieces else x.to(theta.dtype)
    if x.layout is not torch.strided:
        raise ValueError(f"{what} of {type(layer).__name__} (={x.layout}) must be dense: use .to_dense()")
    return in_memory(x)


def settle_bias(bias: Tensor | None, theta: Tensor, length: int, layer: object) -> Tensor | None:
    if bias is None or (type(bias) is not nn.Parameter and isinstance(bias, FakeTensor) and isinstance(theta, FakeTensor)):
        return bias
    fits = bias.dtype is theta.dtype and bias.device == theta.device and bias.shape == (length,) and is_plain(bias)
    if not fits or (length and not bias._is_zerotensor() and not bias.data_ptr()):  # or its storage was freed
        given = f"{type(bias).__name__}, {bias.dtype} of shape {tuple(bias.shape)} on {bias.device}"
        wanted = f"{theta.dtype} of shape ({length},) on {theta.device}, as its θ is: convert or move the whole model"
        raise ValueError(f"the bias of {type(layer).__name__} ({given}) must be {wanted}")
    return in_memory(bias if bias.is_contiguous() else bias.contiguous())


def in_memory(tensor: Tensor) -> Tensor:
    """The tensor itself, unless its numbers are still to be made: a pending sign, or zeros that take no memory."""
    return tensor.clone() if tensor.is_neg() or tensor._is_zerotensor() else tensor


def refuse_second_derivative(name: str) -> None:
    """In a backward pass: with create_graph=True our gradients would be constants in that graph."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"{name} has no second derivative: use create_graph=False")


def require_kept(tensors: Sequence[Tensor | None], shapes: Sequence[tuple[int, ...]], like: Tensor) -> None:
    """What was kept for the backward pass must come back as it was: hooks for saved tensors may return anything."""
    dtype, device = like.dtype, like.device
    if type(like) is not Tensor and isinstance(like, FakeTensor):
        return
    for tensor, shape in zip([tensor for tensor in tensors if tensor is not None], shapes, strict=True):
        same = tensor.shape == shape and tensor.dtype is dtype and tensor.device == device
        if not (same and is_plain(tensor)):
            kept = f"{like.dtype} of shape {tuple(shape)} on {like.device}"
            found = f"{type(tensor).__name__} ({tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device})"
            what = f"a tensor that was kept for the backward pass ({kept}) came back as {found}"
            raise RuntimeError(f"{what}: saved_tensors_hooks must give back what they were given")


def note_dense(layer: Any, x: Tensor) -> None:
    """A dense batch in a wiring some layer of which had sparse ones: the columns of that layer that it has."""
    if (seen := layer.fast_wiring.seen.get(layer.layer_id)) is not None:
        seen.add_dense(x)


class _SparseProduct(torch.autograd.Function):
    """Exact gradients to the input, to θ at the active positions, and to the bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, theta: Tensor, bias: Tensor | None, layer: Any) -> Tensor:
        ctx.save_for_backward(x, theta)
        index = layer.fast_wiring.layer_index(layer.layer_id)
        ctx.made_of = (layer, index, (x.shape, theta.shape))
        return layer.op_forward(x, theta, index, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        dy, (layer, index, shapes) = in_memory(grads[0]), ctx.made_of
        if torch.is_grad_enabled():
            refuse_second_derivative(type(layer).__name__)
        x, theta = kept = ctx.saved_tensors
        require_kept(kept, shapes, dy)
        need_dx, need_dtheta, need_dbias, _ = ctx.needs_input_grad
        dx, dtheta = layer.op_backward(x, dy, theta, index, need_dx, need_dtheta)
        dbias = dy.sum(layer.bias_sums) if need_dbias else None
        if layer.fast_wiring.seen:
            note_dense(layer, x)
        if (watch := layer.fast_wiring.watch) is not None:
            watch.setdefault(layer.layer_id, []).append(layer.gradient_source(x, dy))
        return dx, dtheta, dbias, None


_apply: Callable[..., Tensor] = direct(_SparseProduct)


def autocast_dtype(device: torch.device, theta: Tensor) -> torch.dtype | None:
    """The dtype that results have under autocast; None without it, or where parameters are as short themselves."""
    if not _any_autocast():  # quick: every call of a layer asks
        return None
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) and theta.element_size() >= 4 else None


_PIECE = 1 << 18  # numbers of an input that are in the precision of θ at a time, but at least one row or image


def _rows(x: Tensor) -> list[slice]:
    size = max(1, _PIECE * len(x) // max(1, x.numel()))
    return [slice(start, start + size) for start in range(0, len(x), size)]


class _HalfProduct(torch.autograd.Function):
    """``_SparseProduct`` of activations in autocast's precision: θ and all sums keep theirs, and a piece of the batch at a
    time is converted for the kernels, so that no copy of all activations is made or kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, theta: Tensor, bias: Tensor | None, layer: Any, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, theta)
        index = layer.fast_wiring.layer_index(layer.layer_id)
        ctx.made_of = (layer, index)
        parts = [layer.op_forward(x[rows].to(theta.dtype), theta, index, bias).to(dtype) for rows in _rows(x)]
        return torch.cat(parts) if parts else layer.op_forward(x.to(theta.dtype), theta, index, bias).to(dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        dy, (layer, index) = in_memory(grads[0]), ctx.made_of
        refuse_second_derivative(type(layer).__name__)
        x, theta = ctx.saved_tensors
        need_dx, need_dtheta, need_dbias, _, _ = ctx.needs_input_grad
        dx, dtheta = torch.empty_like(x) if need_dx else None, torch.zeros_like(theta) if need_dtheta else None
        dbias: Tensor | None = None
        for rows in _rows(x):
            inputs, upstream = x[rows].to(theta.dtype), dy[rows].to(theta.dtype)
            own_dx, own_dtheta = layer.op_backward(inputs, upstream, theta, index, need_dx, need_dtheta)
            if dx is not None and own_dx is not None:
                dx[rows] = own_dx
            if dtheta is not None and own_dtheta is not None:
                dtheta += own_dtheta
            if need_dbias:
                own = upstream.sum(layer.bias_sums)
                dbias = own if dbias is None else dbias + own
        if layer.fast_wiring.seen:
            note_dense(layer, x)
        if (watch := layer.fast_wiring.watch) is not None:
            watch.setdefault(layer.layer_id, []).append(layer.gradient_source(x.to(theta.dtype), dy.to(theta.dtype)))
        return dx, dtheta, dbias, None, None


_apply_half: Callable[..., Tensor] = direct(_HalfProduct)


def sparse_product(x: Tensor, theta: Tensor, bias: Tensor | None, layer: Any) -> Tensor:
    if _any_autocast() and (dtype := autocast_dtype(x.device, theta)) is not None:
        try:
            return _apply_half(x, theta, bias, layer, dtype)
        except DormantThetaError:
            return _apply_half(x, layer.fast_wiring.dormant_as_zero(theta), bias, layer, dtype)
    try:
        return _apply(x, theta, bias, layer)
    except DormantThetaError:
        return _apply(x, layer.fast_wiring.dormant_as_zero(theta), bias, layer)
