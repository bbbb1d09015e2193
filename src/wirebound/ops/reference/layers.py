"""Sparse linear layers and convolutions in plain torch: any device, O(K + activations) memory, exact gradients."""

from collections.abc import Iterator

import torch
from torch import Tensor

from wirebound.ops.faults import require_active
from wirebound.ops.layer_shapes import ConvWindow, Gradients
from wirebound.ops.layout import LayerIndex, for_connections, rows_of, signs_of
from wirebound.ops.reference import conv_products, products

_CHUNK_ELEMENTS = 1 << 22  # activations gathered at a time, so that scratch does not grow with K
_View = tuple[slice, slice, slice, slice]


def _read(index: LayerIndex, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and sign of each connection of a layer."""
    packed_rows, colptr = index.layer_packed_rows(), index.layer_colptr()
    columns = torch.arange(colptr.numel() - 1, device=colptr.device)
    return rows_of(packed_rows), for_connections(columns, colptr, packed_rows.numel()), signs_of(packed_rows, dtype)


def _chunks(batch: int, connections: int) -> list[slice]:
    size = max(1, _CHUNK_ELEMENTS // max(1, batch))
    return [slice(start, start + size) for start in range(0, connections, size)]


def _conv_chunks(
    rows: Tensor, columns: Tensor, window: ConvWindow, batch: int, height: int, width: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, _View]]:
    """All connections for outputs of this size: numbers, output channels, input channels, view of the padded input.

    They come by their place in the kernel: all that share one see the same shifted (and strided) view of the input, and
    differ in the two channels they connect.
    """
    places = window.kernel[0] * window.kernel[1]
    group = torch.div(rows, max(1, window.out_channels // window.groups), rounding_mode="floor")
    channels = group * window.group_channels + torch.div(columns, places, rounding_mode="floor")
    by_place = torch.argsort(columns % places, stable=True)
    each = torch.bincount(columns % places, minlength=places).tolist()
    for place, numbers in enumerate(by_place.split(each)):
        corner = [at * step for at, step in zip(divmod(place, window.kernel[1]), window.dilation, strict=True)]
        ends = [at + (size - 1) * step + 1 for at, size, step in zip(corner, (height, width), window.stride, strict=True)]
        down, across = map(slice, corner, ends, window.stride)
        for part in _chunks(batch * height * width, len(numbers)):
            which = numbers[part]
            yield which, rows[which], channels[which], (slice(None), slice(None), down, across)


class ReferenceLayers:
    def linear_forward(self, x: Tensor, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None) -> Tensor:
        """y = x Wᵀ + bias for x of shape [batch, n_in] and the sparse W of one layer, W[row, column] = sign · θ."""
        require_active(theta, index.bound)
        batch, connections = x.shape[0], theta.numel()
        if products.has_products(theta, batch):
            return products.linear_forward(x, theta, index, n_out, bias)
        rows, columns, signs = _read(index, theta.dtype)
        weight, inputs, y = theta * signs, x.t(), x.new_zeros(n_out, batch)
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
        if products.has_products(theta, batch):
            return products.linear_backward(x, dy, theta, index, need_dx, need_dtheta)
        rows, columns, signs = _read(index, theta.dtype)
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

    def conv2d_forward(
        self, x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None
    ) -> Tensor:
        """The convolution of x [batch, channels, height, width] with the sparse weights of one layer, plus bias."""
        require_active(theta, index.bound)
        batch, height, width = x.shape[0], window.out_size(x.shape[2], 0), window.out_size(x.shape[3], 1)
        if conv_products.convolves_by_products(theta, window, batch * height * width):
            return conv_products.conv2d_forward(x, theta, index, window, bias)
        rows, columns, signs = _read(index, theta.dtype)
        weight, y = theta * signs, x.new_zeros(batch, window.out_channels, height, width)
        padded = window.pad(x)
        for which, own_rows, channels, view in _conv_chunks(rows, columns, window, batch, height, width):
            y.index_add_(1, own_rows, padded[view][:, channels] * weight[which].view(-1, 1, 1))
        return y if bias is None else y + bias.view(-1, 1, 1)

    def conv2d_backward(
        self,
        x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, need_dx: bool, need_dtheta: bool,
    ) -> Gradients:  # fmt: skip
        """Gradients of the convolution to its input and to θ at the active positions; None where not needed."""
        batch, _, height, width = dy.shape
        if conv_products.convolves_by_products(theta, window, batch * height * width):
            return conv_products.conv2d_backward(x, dy, theta, index, window, need_dx, need_dtheta)
        rows, columns, signs = _read(index, theta.dtype)
        padded = window.pad(x)
        dx = torch.zeros_like(padded, memory_format=torch.contiguous_format) if need_dx else None
        dtheta = torch.zeros_like(theta) if need_dtheta else None
        for which, own_rows, channels, view in _conv_chunks(rows, columns, window, batch, height, width):
            upstream, sign = dy[:, own_rows], signs[which]
            if dtheta is not None:
                dtheta[which] = (padded[view][:, channels] * upstream).sum((0, 2, 3)) * sign
            if dx is not None:
                dx[view].index_add_(1, channels, upstream * (theta[which] * sign).view(-1, 1, 1))
        if dx is not None:  # take the padding off; where the input was cropped, nothing saw it
            margins = window.margins(x.shape[2], x.shape[3])
            dx = torch.nn.functional.pad(dx, [-margin for margin in margins]).contiguous()
        return dx, dtheta
