"""The sparse linear layer in plain torch: any device, O(K + batch) memory, exact gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from wirebound.ops.faults import require_active
from wirebound.ops.layer_shapes import Gradients
from wirebound.ops.layout import LayerIndex, for_connections, rows_of, signs_of

_CHUNK_ELEMENTS = 1 << 22  # batch x connections gathered at a time, so that scratch does not grow with K


def _columns(colptr: Tensor, connections: int) -> Tensor:
    return for_connections(torch.arange(colptr.numel() - 1, device=colptr.device), colptr, connections)


def _chunks(batch: int, connections: int) -> list[slice]:
    size = max(1, _CHUNK_ELEMENTS // max(1, batch))
    return [slice(start, start + size) for start in range(0, connections, size)]


class ReferenceLinear:
    def linear_forward(self, x: Tensor, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None) -> Tensor:
        """y = x Wᵀ + bias for x of shape [batch, n_in] and the sparse W of one layer, W[row, column] = sign · θ."""
        require_active(theta, index.bound)
        batch, connections = x.shape[0], theta.numel()
        packed_rows, colptr = index.layer_packed_rows(), index.layer_colptr()
        rows, columns = rows_of(packed_rows), _columns(colptr, connections)
        weight = theta * signs_of(packed_rows, theta.dtype)
        y = x.new_zeros(n_out, batch)
        inputs = x.t()
        for part in _chunks(batch, connections):
            contribution = inputs[columns[part]] * weight[part, None]
            y.scatter_add_(0, rows[part, None].expand(-1, batch), contribution)
        y = y.t().contiguous()
        return y if bias is None else y + bias

    def linear_backward(
        self, x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, need_dx: bool, need_dtheta: bool
    ) -> Gradients:
        """Gradients to the input and to θ at the active positions, sign · Σ_batch x · dy; None where not needed."""
        batch, connections = x.shape[0], theta.numel()
        packed_rows, colptr = index.layer_packed_rows(), index.layer_colptr()
        rows, columns = rows_of(packed_rows), _columns(colptr, connections)
        signs = signs_of(packed_rows, theta.dtype)
        dx = x.new_zeros(x.shape[1], batch) if need_dx else None
        dtheta = torch.empty_like(theta) if need_dtheta else None
        inputs, outputs = x.t(), dy.t()
        for part in _chunks(batch, connections):
            gradient = outputs[rows[part]]
            if dtheta is not None:
                dtheta[part] = (inputs[columns[part]] * gradient).sum(1) * signs[part]
            if dx is not None:
                contribution = gradient * (theta[part] * signs[part])[:, None]
                dx.scatter_add_(0, columns[part, None].expand(-1, batch), contribution)
        return (None if dx is None else dx.t().contiguous()), dtheta
