"""Layers on any device: linear ones and convolutions as products, recurrent ones as a loop around them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.ops.device.products import Pattern, Products
from wirebound.ops.layer_shapes import BackwardCall, ConvWindow, ForwardCall, Gradients, Kept, RecurrentGradients
from wirebound.ops.layout import LayerIndex
from wirebound.ops.reference.conv_products import _images, _patches
from wirebound.ops.reference.recurrent import ReferenceRecurrent

_Known = dict[tuple[int, int], Pattern]
# Of the recurrent layer that is being computed, by its rows and first column: its loop meets the same matrix in every step.
_known: ContextVar[_Known | None] = ContextVar("known", default=None)


@contextmanager
def _remembering() -> Iterator[None]:
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def _pattern(index: LayerIndex, n_out: int) -> Pattern:
    known = _known.get()
    if known is None:
        return Pattern(index, n_out)
    key = (id(index.packed_rows), index.first)
    if key not in known:
        known[key] = Pattern(index, n_out)
    return known[key]


def _conv_products(theta: Tensor, index: LayerIndex, window: ConvWindow) -> Products:
    places = window.kernel[0] * window.kernel[1]
    groups = None if window.groups == 1 else (window.out_channels // window.groups, window.group_channels * places)
    return Products(Pattern(index, window.out_channels, groups), theta)


def by_triton(theta: Tensor) -> bool:
    """Whether the Triton kernels are asked for: ``WIREBOUND_TRITON=1``, on CUDA."""
    return os.environ.get("WIREBOUND_TRITON", "0") == "1" and theta.is_cuda and theta.dtype is torch.float32


class DeviceLayers(ReferenceRecurrent):
    def linear_forward(self, x: Tensor, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None) -> Tensor:
        if by_triton(theta):
            from wirebound.ops.device import triton_kernels

            place = (index.first, index.last - index.first, n_out)
            order = triton_kernels.rows_in_order(index.packed_rows, index.colptr, *place)
            return triton_kernels.linear_forward(x, theta, index.packed_rows, order, n_out, bias, index.bound)
        y = Products(_pattern(index, n_out), theta).forward(x.t()).t()
        return y.contiguous() if bias is None else y + bias

    def linear_backward(
        self, x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, need_dx: bool, need_dtheta: bool
    ) -> Gradients:
        if by_triton(theta):
            from wirebound.ops.device import triton_kernels

            arrays = (theta, index.packed_rows, index.colptr, index.first)
            return triton_kernels.linear_backward(x, dy, *arrays, need_dx, need_dtheta, index.bound)
        products, upstream = Products(_pattern(index, dy.shape[1]), theta), dy.t().contiguous()
        dx = products.backward(upstream).t().contiguous() if need_dx else None
        return dx, products.sampled(x.t(), upstream) if need_dtheta else None

    def conv2d_forward(
        self, x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None
    ) -> Tensor:
        batch, height, width = x.shape[0], window.out_size(x.shape[2], 0), window.out_size(x.shape[3], 1)
        products = _conv_products(theta, index, window)
        y = x.new_empty(batch, window.out_channels, height, width)
        for part in _images(window, batch, height * width):
            patches = _patches(window.pad(x[part]), window, height, width).reshape(products.pattern.n_in, -1)
            y[part] = products.forward(patches).view(window.out_channels, -1, height, width).transpose(0, 1)
        return y if bias is None else y.add_(bias.view(-1, 1, 1))

    def conv2d_backward(
        self,
        x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, need_dx: bool, need_dtheta: bool,
    ) -> Gradients:  # fmt: skip
        batch, _, height, width = dy.shape
        products, margins = _conv_products(theta, index, window), window.margins(x.shape[2], x.shape[3])
        dx = x.new_zeros(x.shape) if need_dx else None
        dtheta = torch.zeros_like(theta) if need_dtheta else None
        for part in _images(window, batch, height * width):
            upstream = dy[part].transpose(0, 1).reshape(window.out_channels, -1)
            padded = window.pad(x[part])
            if dtheta is not None:
                patches = _patches(padded, window, height, width).reshape(products.pattern.n_in, -1)
                dtheta += products.sampled(patches, upstream)
            if dx is not None:
                of_padded = torch.zeros_like(padded, memory_format=torch.contiguous_format)
                views = _patches(of_padded, window, height, width)
                of_patches = products.backward(upstream).view(views.shape)
                for down in range(window.kernel[0]):
                    for across in range(window.kernel[1]):  # at one place of the kernel, no two outputs see the same input
                        views[:, down, across] += of_patches[:, down, across]
                dx[part] = F.pad(of_padded, [-margin for margin in margins])
        return dx, dtheta

    def recurrent_forward_each(self, calls: Sequence[ForwardCall]) -> list[Kept]:
        with _remembering():
            return super().recurrent_forward_each(calls)

    def recurrent_backward_each(self, calls: Sequence[BackwardCall]) -> list[RecurrentGradients]:
        with _remembering():
            return super().recurrent_backward_each(calls)
