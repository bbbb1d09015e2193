"""Sparse convolutions of planes; those in one and three dimensions are made of them (``nn/conv.py``)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layer_shapes import ConvWindow
from wirebound.ops.registered.layer import find_layer, forward_or_awake, masked, refuse_second_derivative


def numbers_of(window: ConvWindow) -> list[int]:
    """A window as an operator takes it."""
    pairs = (window.kernel, window.stride, window.before, window.after, window.dilation)
    return [window.in_channels, window.out_channels, window.groups, *(size for pair in pairs for size in pair)]


def window_of(numbers: Sequence[int]) -> ConvWindow:
    kernel, stride, before, after, dilation = ((numbers[i], numbers[i + 1]) for i in range(3, 13, 2))
    return ConvWindow(numbers[0], numbers[1], kernel, stride, before, after, dilation, numbers[2])


def _columns(window: ConvWindow) -> int:
    return window.group_channels * window.kernel[0] * window.kernel[1]


@torch.library.custom_op("wirebound::conv2d", mutates_args=())
def conv2d(
    x: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, bias: Tensor | None, first: int, window: Sequence[int],
    bound: bool,
) -> Tensor:  # fmt: skip
    """The convolution of x [batch, channels, height, width] with the layer whose columns begin at ``first``, plus bias."""
    shape = window_of(window)
    layer = find_layer(theta, packed_rows, colptr, first, first + _columns(shape), bound)
    run = ops.backend_of(theta).conv2d_forward
    y: Tensor = forward_or_awake([layer], lambda found: run(x, found[0].theta, found[0].index, shape, bias))
    return y.contiguous()


@conv2d.register_fake
def _(
    x: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, bias: Tensor | None, first: int, window: Sequence[int],
    bound: bool,
) -> Tensor:  # fmt: skip
    shape = window_of(window)
    return x.new_empty(x.shape[0], shape.out_channels, shape.out_size(x.shape[2], 0), shape.out_size(x.shape[3], 1))


@torch.library.custom_op("wirebound::conv2d_backward", mutates_args=())
def conv2d_backward(
    x: Tensor, dy: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, first: int, window: Sequence[int], bound: bool,
    need_dx: bool, need_dtheta: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients to x and to θ of the whole wiring; empty where not needed."""
    shape = window_of(window)
    layer = find_layer(theta, packed_rows, colptr, first, first + _columns(shape), bound)
    dormant = layer.has_dormant
    awake = layer.awake() if dormant else layer
    dx, dtheta = ops.backend_of(theta).conv2d_backward(x, dy, awake.theta, awake.index, shape, need_dx, need_dtheta)
    found = x.new_empty(0) if dx is None else dx.contiguous()
    return found, theta.new_empty(0) if dtheta is None else layer.in_wiring(masked(dtheta, layer, dormant), theta)


@conv2d_backward.register_fake
def _(
    x: Tensor, dy: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, first: int, window: Sequence[int], bound: bool,
    need_dx: bool, need_dtheta: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    dx = x.new_empty(x.shape) if need_dx else x.new_empty(0)
    return dx, theta.new_empty(theta.shape if need_dtheta else 0)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, theta, packed_rows, colptr, _, ctx.first, ctx.window, ctx.bound = inputs
    ctx.save_for_backward(x, theta, packed_rows, colptr)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, theta, packed_rows, colptr = ctx.saved_tensors
    need_dx, need_dtheta, _, _, need_dbias, *_ = ctx.needs_input_grad
    where = (theta, packed_rows, colptr, ctx.first, ctx.window, ctx.bound)
    dx, dtheta = conv2d_backward(x, dy, *where, need_dx, need_dtheta)
    dbias = dy.sum((0, 2, 3)) if need_dbias else None
    return dx if need_dx else None, dtheta if need_dtheta else None, None, None, dbias, None, None, None


conv2d.register_autograd(_backward, setup_context=_setup)
conv2d_backward.register_autograd(refuse_second_derivative("convolutional"))
