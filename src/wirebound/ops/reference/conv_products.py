"""Sparse convolutions as products: the inputs that each output sees are copied side by side, a few images at a time."""

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.ops.layer_shapes import ConvWindow, Gradients
from wirebound.ops.layout import LayerIndex
from wirebound.ops.reference.products import LayerProducts, ThetaGradient, has_products, product

_PATCH_ELEMENTS = 1 << 20  # copied at a time, so that scratch does not grow with the batch; one image at least


def convolves_by_products(theta: Tensor, window: ConvWindow, outputs: int) -> bool:
    """Whether the work of a convolution is done here: with groups each of them would be a matrix of its own."""
    return window.groups == 1 and has_products(theta, outputs)


def _images(window: ConvWindow, batch: int, outputs: int) -> list[slice]:
    size = max(1, _PATCH_ELEMENTS // (window.in_channels * window.kernel[0] * window.kernel[1] * outputs))
    return [slice(start, start + size) for start in range(0, batch, size)]


def _patches(padded: Tensor, window: ConvWindow, height: int, width: int) -> Tensor:
    """What each output sees, a view [channel, kernel height, kernel width, image, height, width]."""
    image, channel, down, across = padded.stride()
    places, steps = window.dilation, window.stride
    strides = (channel, down * places[0], across * places[1], image, down * steps[0], across * steps[1])
    sizes = (window.in_channels, *window.kernel, padded.shape[0], height, width)
    return padded.as_strided(sizes, strides, padded.storage_offset())


def conv2d_forward(x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None) -> Tensor:
    batch, height, width = x.shape[0], window.out_size(x.shape[2], 0), window.out_size(x.shape[3], 1)
    layer, y = LayerProducts(theta, index, window.out_channels), x.new_empty(batch, window.out_channels, height, width)
    weight = layer.weight()
    for part in _images(window, batch, height * width):
        patches = _patches(window.pad(x[part]), window, height, width).reshape(layer.size[1], -1)
        y[part] = product(weight, patches).view(window.out_channels, -1, height, width).transpose(0, 1)
    return y if bias is None else y.add_(bias.view(-1, 1, 1))


def conv2d_backward(
    x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, need_dx: bool, need_dtheta: bool
) -> Gradients:
    batch, _, height, width = dy.shape
    layer = LayerProducts(theta, index, window.out_channels)
    transposed, dx = (layer.transposed(), x.new_empty(x.shape)) if need_dx else (None, None)
    dtheta, margins = ThetaGradient(layer) if need_dtheta else None, window.margins(x.shape[2], x.shape[3])
    for part in _images(window, batch, height * width):
        upstream = dy[part].transpose(0, 1).reshape(window.out_channels, -1)
        padded = window.pad(x[part])
        if dtheta is not None:
            dtheta.add(_patches(padded, window, height, width).reshape(layer.size[1], -1), upstream.t())
        if transposed is not None and dx is not None:
            of_padded = torch.zeros_like(padded, memory_format=torch.contiguous_format)
            views = _patches(of_padded, window, height, width)
            of_patches = product(transposed, upstream).view(views.shape)
            for down in range(window.kernel[0]):
                for across in range(window.kernel[1]):  # at one place of the kernel, no two outputs see the same input
                    views[:, down, across] += of_patches[:, down, across]
            # Take the padding off; where the input was cropped, nothing saw it.
            dx[part] = F.pad(of_padded, [-margin for margin in margins])
    return dx, None if dtheta is None else dtheta.finish()
