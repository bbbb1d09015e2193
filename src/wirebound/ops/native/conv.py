"""The sparse convolution by the C++ kernels."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from wirebound.ops import structs
from wirebound.ops.faults import raise_fault
from wirebound.ops.layer_shapes import ConvWindow, Gradients
from wirebound.ops.layout import LayerIndex
from wirebound.ops.native.calls import address, functions, require_length

_FORWARD = functions("wb_conv_forward")
_BACKWARD = functions("wb_conv_backward")


@functools.lru_cache(maxsize=256)
def _c_shape(window: ConvWindow, batch: int, height: int, width: int) -> structs.Conv:
    """A convolution of inputs of this size, as the kernels read it."""
    out_size = (window.out_size(height, 0), window.out_size(width, 1))
    return structs.Conv(
        batch, window.in_channels, window.out_channels, window.groups, (height, width), out_size,
        window.kernel, window.stride, window.before, window.dilation,
    )  # fmt: skip


def _layer(theta: Tensor, index: LayerIndex) -> tuple[int, int, int, int]:
    at = (index.colptr.data_ptr() + 8 * index.first, index.packed_rows.data_ptr() + 4 * index.start, theta.data_ptr())
    return index.end - index.start, *at


class NativeConv:
    def conv2d_forward(
        self, x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None
    ) -> Tensor:
        x = x.contiguous()
        batch, _, height, width = x.shape
        y = x.new_empty(batch, window.out_channels, window.out_size(height, 0), window.out_size(width, 1))
        require_length(theta, index.end - index.start)
        status = _FORWARD[theta.dtype](
            ctypes.byref(_c_shape(window, batch, height, width)), x.data_ptr(), y.data_ptr(), *_layer(theta, index),
            index.bound, address(bias), torch.get_num_threads(),
        )  # fmt: skip
        if status:
            raise_fault(status)
        return y

    def conv2d_backward(
        self,
        x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, need_dx: bool, need_dtheta: bool,
    ) -> Gradients:  # fmt: skip
        x, dy = x.contiguous(), dy.contiguous()
        batch, _, height, width = x.shape
        dx = torch.empty_like(x) if need_dx else None
        dtheta = torch.empty_like(theta) if need_dtheta else None
        status = _BACKWARD[theta.dtype](
            ctypes.byref(_c_shape(window, batch, height, width)), x.data_ptr(), dy.data_ptr(), address(dx), address(dtheta),
            *_layer(theta, index), torch.get_num_threads(),
        )  # fmt: skip
        if status:
            raise_fault(status)
        return dx, dtheta
