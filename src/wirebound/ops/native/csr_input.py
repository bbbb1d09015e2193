"""Sparse linear layers on sparse rows of input by the C++ kernels."""

import ctypes

import torch
from torch import Tensor

from wirebound.ops.faults import raise_fault
from wirebound.ops.layer_shapes import CsrRows
from wirebound.ops.layout import LayerIndex
from wirebound.ops.native.calls import address, functions, layer_addresses

_FORWARD, _BACKWARD = functions("wb_csr_forward"), functions("wb_csr_backward")
_Addresses = tuple[int, int, int, int, int]


def _addresses(rows: CsrRows) -> _Addresses:
    values, columns, starts = rows
    return values.data_ptr(), columns.data_ptr(), starts.data_ptr(), rows.batch, columns.numel()


class NativeCsr:
    def csr_forward(self, rows: CsrRows, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None) -> Tensor:
        y, n_in = rows.values.new_empty(rows.batch, n_out), index.last - index.first
        layer, threads = layer_addresses(theta, index), torch.get_num_threads()
        forward = _FORWARD[theta.dtype]
        if status := forward(*_addresses(rows), y.data_ptr(), n_in, n_out, *layer, index.bound, address(bias), threads):
            raise_fault(status)
        return y

    def csr_backward(
        self, rows: CsrRows, dy: Tensor, theta: Tensor, index: LayerIndex, need_dtheta: bool, seen: Tensor | None
    ) -> tuple[Tensor | None, int]:
        dy, n_in, new = dy.contiguous(), index.last - index.first, ctypes.c_int64(0)
        dtheta = torch.empty_like(theta) if need_dtheta else None
        layer, n_out = layer_addresses(theta, index), dy.shape[1]
        status = _BACKWARD[theta.dtype](
            *_addresses(rows), dy.data_ptr(), n_out, address(dtheta), n_in, n_out, *layer[:3], address(seen),
            ctypes.byref(new), torch.get_num_threads(),
        )  # fmt: skip
        if status:
            raise_fault(status)
        return dtheta, new.value
