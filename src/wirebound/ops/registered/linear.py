"""Sparse linear layers."""

from typing import Any

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.registered.layer import find_layer, forward_or_awake, masked, refuse_second_derivative


@torch.library.custom_op("wirebound::linear", mutates_args=())
def linear(
    x: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, bias: Tensor | None, first: int, n_out: int, bound: bool
) -> Tensor:
    """y = x Wᵀ + bias for x [batch, n_in] and the layer W of a wiring whose columns begin at ``first``."""
    layer = find_layer(theta, packed_rows, colptr, first, first + x.shape[1], bound)
    run = ops.backend_of(theta).linear_forward
    y: Tensor = forward_or_awake([layer], lambda found: run(x, found[0].theta, found[0].index, n_out, bias))
    return y.contiguous()


@linear.register_fake
def _(
    x: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, bias: Tensor | None, first: int, n_out: int, bound: bool
) -> Tensor:
    return x.new_empty(x.shape[0], n_out)


@torch.library.custom_op("wirebound::linear_backward", mutates_args=())
def linear_backward(
    x: Tensor, dy: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, first: int, bound: bool,
    need_dx: bool, need_dtheta: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients to x and to θ of the whole wiring; empty where not needed."""
    layer = find_layer(theta, packed_rows, colptr, first, first + x.shape[1], bound)
    dormant = layer.has_dormant
    awake = layer.awake() if dormant else layer
    dx, dtheta = ops.backend_of(theta).linear_backward(x, dy, awake.theta, awake.index, need_dx, need_dtheta)
    found = x.new_empty(0) if dx is None else dx.contiguous()
    return found, theta.new_empty(0) if dtheta is None else layer.in_wiring(masked(dtheta, layer, dormant), theta)


@linear_backward.register_fake
def _(
    x: Tensor, dy: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, first: int, bound: bool,
    need_dx: bool, need_dtheta: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    dx = x.new_empty(x.shape) if need_dx else x.new_empty(0)
    return dx, theta.new_empty(theta.shape if need_dtheta else 0)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, theta, packed_rows, colptr, _, ctx.first, _, ctx.bound = inputs
    ctx.save_for_backward(x, theta, packed_rows, colptr)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, theta, packed_rows, colptr = ctx.saved_tensors
    need_dx, need_dtheta, _, _, need_dbias, *_ = ctx.needs_input_grad
    dx, dtheta = linear_backward(x, dy, theta, packed_rows, colptr, ctx.first, ctx.bound, need_dx, need_dtheta)
    dbias = dy.sum(0) if need_dbias else None
    return dx if need_dx else None, dtheta if need_dtheta else None, None, None, dbias, None, None, None


linear.register_autograd(_backward, setup_context=_setup)
linear_backward.register_autograd(refuse_second_derivative("linear"))
