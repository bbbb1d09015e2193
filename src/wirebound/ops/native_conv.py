"""The sparse convolution by the C++ kernels, under the signatures of the reference."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from wirebound.ops import structs
from wirebound.ops.faults import raise_fault
from wirebound.ops.layout import LayerIndex
from wirebound.ops.native import address, functions, require_length
from wirebound.ops.window import ConvWindow

_FORWARD = functions("wb_conv_forward")
_BACKWARD = functions("wb_conv_backward")


@functools.lru_cache(maxsize=256)
def c_shape(window: ConvWindow, batch: int, height: int, width: int) -> structs.Conv:
    """A convolution of inputs of this size, as the kernels read it."""
    return structs.Conv(
        batch,
        window.in_channels,
        window.out_channels,
        window.groups,
        (height, width),
        (window.out_size(height, 0), window.out_size(width, 1)),
        window.kernel,
        window.stride,
        window.before,
        window.dilation,
    )


def conv2d_forward(x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None) -> Tensor:
    x = x.contiguous()
    batch, _, height, width = x.shape
    y = x.new_empty(batch, window.out_channels, window.out_size(height, 0), window.out_size(width, 1))
    require_length(theta, index.end - index.start)
    status = _FORWARD[theta.dtype](
        ctypes.byref(c_shape(window, batch, height, width)),
        x.data_ptr(),
        y.data_ptr(),
        index.end - index.start,
        index.colptr.data_ptr() + 8 * index.first,
        index.packed_rows.data_ptr() + 4 * index.start,
        theta.data_ptr(),
        index.bound,
        address(bias),
        torch.get_num_threads(),
    )
    if status:
        raise_fault(status)
    return y


def conv2d_backward(
    x: Tensor,
    dy: Tensor,
    theta: Tensor,
    index: LayerIndex,
    window: ConvWindow,
    need_dx: bool,
    need_dtheta: bool,
) -> tuple[Tensor | None, Tensor | None]:
    x, dy = x.contiguous(), dy.contiguous()
    batch, _, height, width = x.shape
    dx = torch.empty_like(x) if need_dx else None
    dtheta = torch.empty_like(theta) if need_dtheta else None
    status = _BACKWARD[theta.dtype](
        ctypes.byref(c_shape(window, batch, height, width)),
        x.data_ptr(),
        dy.data_ptr(),
        address(dx),
        address(dtheta),
        index.end - index.start,
        index.colptr.data_ptr() + 8 * index.first,
        index.packed_rows.data_ptr() + 4 * index.start,
        theta.data_ptr(),
        torch.get_num_threads(),
    )
    if status:
        raise_fault(status)
    return dx, dtheta
