"""Sparse inputs of a linear layer: rows of torch's CSR and COO tensors, of which only the nonzeros are looked at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from wirebound import ops
from wirebound.nn.inputs import autocast_dtype, direct, in_memory, refuse_second_derivative, require_kept
from wirebound.ops.faults import DormantThetaError
from wirebound.ops.layer_shapes import CsrRows
from wirebound.ops.layout import index_of
from wirebound.wiring.occurring import SeenColumns
from wirebound.wiring.trust import is_plain

_LAYOUTS = (torch.sparse_csr, torch.sparse_coo)


def is_sparse_input(x: Any) -> bool:
    return isinstance(x, Tensor) and x.layout is not torch.strided


@dataclass
class CsrGradient:
    """Sparse rows and output gradient of one pass: the gradient of any weight follows from them (``GradientSource``)."""

    rows: CsrRows
    dy: Tensor  # [batch, n_out]
    n_in: int

    def block(self, first: int, last: int) -> Tensor:
        columns, own = self.rows.columns, (self.rows.columns >= first) & (self.rows.columns < last)
        found = self.dy.new_zeros(last - first, self.dy.shape[1])
        sample = self.rows.sample_of()[own]
        return found.index_add_(0, columns[own] - first, self.dy[sample] * self.rows.values[own, None]).t()

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        index = index_of(rows, columns, self.n_in)  # as if these were the connections of the layer
        theta = self.dy.new_zeros(rows.numel())
        return cast(Tensor, ops.backend_of(theta).csr_backward(self.rows, self.dy, theta, index, True, None)[0])


def settle_rows(x: Tensor, theta: Tensor, layer: Any) -> CsrRows:
    """The rows of a sparse input as kernels may read them, or an error that says what it is."""
    name = type(layer).__name__
    if isinstance(x, FakeTensor) or not is_plain(x):
        raise TypeError(f"{name} takes sparse tensors with numbers in memory, not {type(x).__name__}")
    if x.layout not in _LAYOUTS:
        instead = "use .to_sparse_csr() or .to_dense()"
        raise ValueError(f"a sparse input of {name} (={x.layout}) must be torch.sparse_csr or torch.sparse_coo: {instead}")
    if x.dim() != 2 or (x.layout is torch.sparse_coo and x.dense_dim()):
        raise ValueError(f"a sparse input of {name} must have the shape [batch, in_features], not {tuple(x.shape)}")
    if x.shape[1] != layer.in_features:
        raise ValueError(f"the last dimension of the input (={x.shape[1]}) must be in_features (={layer.in_features})")
    if x.requires_grad:
        instead = "detach() it, or use .to_dense() for a gradient to the input"
        raise ValueError(f"{name} has no gradient to a sparse input, which requires one: {instead}")
    if x.device != theta.device:
        raise ValueError(f"the input is on {x.device}, {name} on {theta.device}: move one of them with .to()")
    if x.dtype is not theta.dtype and not (torch.is_autocast_enabled(x.device.type) and x.dtype.is_floating_point):
        raise ValueError(f"the dtype of the input (={x.dtype}) must be that of the layer (={theta.dtype})")
    if x.layout is torch.sparse_coo:
        return _rows_of_coo(x, theta.dtype)
    values, columns, starts = x.values().to(theta.dtype), x.col_indices().to(torch.int64), x.crow_indices().to(torch.int64)
    return CsrRows(values.contiguous(), columns.contiguous(), starts.contiguous())


def _rows_of_coo(x: Tensor, dtype: torch.dtype) -> CsrRows:
    """Duplicates may stay: what they add up to is what is computed with."""
    samples, columns = x._indices()
    values = x._values().to(dtype)
    if samples.numel() and (bool((samples.diff() < 0).any()) or int(samples[0]) < 0):
        order = torch.argsort(samples, stable=True)
        samples, columns, values = samples[order], columns[order], values[order]
    starts = torch.searchsorted(samples.contiguous(), torch.arange(x.shape[0] + 1, device=x.device))
    return CsrRows(values.contiguous(), columns.contiguous(), starts)


class _CsrProduct(torch.autograd.Function):
    """Exact gradients to θ at the active positions, and to the bias."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, columns: Tensor, starts: Tensor, theta: Tensor, bias: Tensor | None, layer: Any
    ) -> Tensor:
        ctx.save_for_backward(values, theta)
        index = layer.fast_wiring.layer_index(layer.layer_id)
        ctx.made_of = (layer, index, columns, starts)
        return ops.backend_of(theta).csr_forward(CsrRows(values, columns, starts), theta, index, layer.out_features, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dy, (layer, index, columns, starts) = in_memory(grads[0]), ctx.made_of
        refuse_second_derivative(type(layer).__name__)
        values, theta = kept = ctx.saved_tensors
        require_kept(kept, (columns.shape, theta.shape), dy)
        need_dtheta, need_dbias = ctx.needs_input_grad[3:5]
        rows, wiring = CsrRows(values, columns, starts), layer.fast_wiring
        seen: SeenColumns | None = None
        if wiring.seen is not None:
            seen = wiring.seen.get(layer.layer_id)
            if seen is None:
                seen = wiring.seen[layer.layer_id] = SeenColumns(layer.in_features, theta.device)
        flags = None if seen is None else seen.flags
        dtheta, new = ops.backend_of(theta).csr_backward(rows, dy, theta, index, need_dtheta, flags)
        if seen is not None:
            seen.add(columns[values != 0], new)
        dbias = dy.sum(0) if need_dbias else None
        if wiring.watch is not None:
            wiring.watch.setdefault(layer.layer_id, []).append(CsrGradient(rows, dy, layer.in_features))
        return None, None, None, dtheta, dbias, None


_apply: Callable[..., Tensor] = direct(_CsrProduct)


def csr_product(rows: CsrRows, theta: Tensor, bias: Tensor | None, layer: Any) -> Tensor:
    """y = x Wᵀ + bias of sparse rows; dense, and in autocast's precision where it is on."""
    try:
        y = _apply(*rows, theta, bias, layer)
    except DormantThetaError:
        y = _apply(*rows, layer.fast_wiring.dormant_as_zero(theta), bias, layer)
    dtype = autocast_dtype(theta.device, theta)
    return y if dtype is None else y.to(dtype)
