"""The sparse convolution in plain torch: any device, O(K + activations) memory, exact gradients.

Connections are taken by their place in the kernel: all that share one see the same shifted (and strided) view of the
input, and differ in the two channels they connect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from wirebound.ops.faults import require_active
from wirebound.ops.layer_shapes import ConvWindow, Gradients
from wirebound.ops.layout import LayerIndex, for_connections, rows_of, signs_of

_CHUNK_ELEMENTS = 1 << 22  # activations gathered at a time, so that scratch does not grow with K


class _Chunk(NamedTuple):
    """Connections at one place of the kernel."""

    which: Tensor  # their numbers in the layer
    rows: Tensor  # output channels
    channels: Tensor  # input channels
    view: tuple[slice, slice, slice, slice]  # of the padded input


def _chunks(index: LayerIndex, window: ConvWindow, batch: int, height: int, width: int) -> Iterator[_Chunk]:
    """All connections of the layer, for outputs of this size."""
    packed_rows, colptr = index.layer_packed_rows(), index.layer_colptr()
    columns = for_connections(torch.arange(colptr.numel() - 1, device=packed_rows.device), colptr, packed_rows.numel())
    rows = rows_of(packed_rows)
    places = window.kernel[0] * window.kernel[1]
    group = torch.div(rows, max(1, window.out_channels // window.groups), rounding_mode="floor")
    channels = group * window.group_channels + torch.div(columns, places, rounding_mode="floor")
    by_place = torch.argsort(columns % places, stable=True)
    each = torch.bincount(columns % places, minlength=places).tolist()
    size = max(1, _CHUNK_ELEMENTS // max(1, batch * height * width))
    start = 0
    for place, count in enumerate(each):
        ky, kx = divmod(place, window.kernel[1])
        top, left = ky * window.dilation[0], kx * window.dilation[1]
        down = slice(top, top + (height - 1) * window.stride[0] + 1, window.stride[0])
        across = slice(left, left + (width - 1) * window.stride[1] + 1, window.stride[1])
        for first in range(start, start + count, size):
            which = by_place[first : min(first + size, start + count)]
            yield _Chunk(which, rows[which], channels[which], (slice(None), slice(None), down, across))
        start += count


class ReferenceConv:
    def conv2d_forward(
        self, x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None
    ) -> Tensor:
        """The convolution of x [batch, channels, height, width] with the sparse weights of one layer, plus bias."""
        require_active(theta, index.bound)
        batch = x.shape[0]
        height, width = window.out_size(x.shape[2], 0), window.out_size(x.shape[3], 1)
        weight = theta * signs_of(index.layer_packed_rows(), theta.dtype)
        y = x.new_zeros(batch, window.out_channels, height, width)
        padded = window.pad(x)
        for chunk in _chunks(index, window, batch, height, width):
            seen = padded[chunk.view][:, chunk.channels]
            y.index_add_(1, chunk.rows, seen * weight[chunk.which].view(-1, 1, 1))
        return y if bias is None else y + bias.view(-1, 1, 1)

    def conv2d_backward(
        self,
        x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, need_dx: bool, need_dtheta: bool,
    ) -> Gradients:  # fmt: skip
        """Gradients of the convolution to its input and to θ at the active positions; None where not needed."""
        batch, _, height, width = dy.shape
        signs = signs_of(index.layer_packed_rows(), theta.dtype)
        margins = window.margins(x.shape[2], x.shape[3])
        padded = window.pad(x)
        dx = torch.zeros_like(padded, memory_format=torch.contiguous_format) if need_dx else None
        dtheta = torch.zeros_like(theta) if need_dtheta else None
        for chunk in _chunks(index, window, batch, height, width):
            upstream = dy[:, chunk.rows]
            sign = signs[chunk.which]
            if dtheta is not None:
                dtheta[chunk.which] = (padded[chunk.view][:, chunk.channels] * upstream).sum((0, 2, 3)) * sign
            if dx is not None:
                weight = (theta[chunk.which] * sign).view(-1, 1, 1)
                dx[chunk.view].index_add_(1, chunk.channels, upstream * weight)
        if dx is not None:  # take the padding off; where the input was cropped, nothing saw it
            dx = torch.nn.functional.pad(dx, [-margin for margin in margins]).contiguous()
        return dx, dtheta
