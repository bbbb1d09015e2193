"""The sparse linear layer by the C++ kernels.

These two are called more often than anything else, with little work at small batches: what they ask of tensors is counted
in tenths of a microsecond.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wirebound.ops.faults import raise_fault
from wirebound.ops.layer_shapes import Gradients
from wirebound.ops.layout import LayerIndex
from wirebound.ops.native.calls import functions, require_length
from wirebound.ops.reference.recurrent import ReferenceRecurrent

_FORWARD = functions("wb_linear_forward")
_BACKWARD = functions("wb_linear_backward")
_threads = torch.get_num_threads


def _row_major(tensor: Tensor) -> Tensor:
    """The tensor itself if its rows are contiguous, as the kernels read it; else a copy."""
    across, along = tensor.stride()
    return tensor if along == 1 and across >= tensor.shape[1] else tensor.contiguous()


class NativeLinear(ReferenceRecurrent):
    """On the reference only for recurrent layers without gates, which are loops around these two."""

    def linear_forward(self, x: Tensor, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None) -> Tensor:
        if not x.is_contiguous():
            x = _row_major(x)
        batch, n_in = x.shape
        y = x.new_empty(batch, n_out)
        packed_rows, colptr, start, end, first, _, bound = index
        require_length(theta, end - start)
        status = _FORWARD[theta.dtype](
            x.data_ptr(), x.stride(0), y.data_ptr(), n_out, batch, n_in, n_out,
            end - start, colptr.data_ptr() + 8 * first, packed_rows.data_ptr() + 4 * start, theta.data_ptr(),
            bound, None if bias is None else bias.data_ptr(), _threads(),
        )  # fmt: skip
        if status:
            raise_fault(status)
        return y

    def linear_backward(
        self, x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, need_dx: bool, need_dtheta: bool
    ) -> Gradients:
        if not x.is_contiguous():
            x = _row_major(x)
        if not dy.is_contiguous():
            dy = _row_major(dy)
        batch, n_in = x.shape
        dx = x.new_empty(batch, n_in) if need_dx else None
        dtheta = torch.empty_like(theta) if need_dtheta else None
        packed_rows, colptr, start, end, first, _, _ = index
        status = _BACKWARD[theta.dtype](
            x.data_ptr(), x.stride(0), dy.data_ptr(), dy.stride(0), None if dx is None else dx.data_ptr(), n_in,
            None if dtheta is None else dtheta.data_ptr(), batch, n_in, dy.shape[1],
            end - start, colptr.data_ptr() + 8 * first, packed_rows.data_ptr() + 4 * start, theta.data_ptr(), _threads(),
        )  # fmt: skip
        if status:
            raise_fault(status)
        return dx, dtheta
