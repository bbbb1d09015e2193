"""One direction of one recurrent layer: two sparse matrices and a loop over time."""

from typing import Any

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layer_shapes import GATES, Recurrence
from wirebound.ops.registered.layer import Layer, find_layer, forward_or_awake, masked, refuse_second_derivative


def _layers(
    x: Tensor, hidden: int, ih: tuple[Tensor, Tensor, Tensor, int], hh: tuple[Tensor, Tensor, Tensor, int], bound: bool
) -> list[Layer]:
    return [find_layer(*one, one[3] + n_in, bound) for one, n_in in ((ih, x.shape[2]), (hh, hidden))]


def _settled(lengths: Tensor | None, x: Tensor) -> Tensor | None:
    """Where kernels run, they read lengths on the CPU; elsewhere these stay where the sequences are."""
    return None if lengths is None else lengths.to(x.device).contiguous()


def _kept_numbers(theta: Tensor, kind: str, steps: int, batch: int, hidden: int) -> int:
    return ops.backend_behind(theta).recurrent_kept_numbers(kind, steps, batch, hidden, theta.element_size())


@torch.library.custom_op("wirebound::recurrent", mutates_args=())
def recurrent(
    x: Tensor, h_0: Tensor, c_0: Tensor | None,
    theta_ih: Tensor, packed_rows_ih: Tensor, colptr_ih: Tensor, bias_ih: Tensor | None,
    theta_hh: Tensor, packed_rows_hh: Tensor, colptr_hh: Tensor, bias_hh: Tensor | None, lengths: Tensor | None,
    first_ih: int, first_hh: int, kind: str, hidden: int, reverse: bool, bound: bool, keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """y [steps, batch, hidden], h and c after the last step, and what the backward operator needs; without c it is empty."""
    layers = _layers(x, hidden, (theta_ih, packed_rows_ih, colptr_ih, first_ih), (theta_hh, packed_rows_hh, colptr_hh, first_hh), bound)
    settled = _settled(lengths, x)
    steps, batch, _ = x.shape
    y = x.new_empty(steps, batch, hidden)
    kept = x.new_empty(_kept_numbers(theta_ih, kind, steps, batch, hidden) if keep else 0)

    def run(found: list[Layer]) -> Any:
        ih, hh = found
        cell = Recurrence(kind, hidden, reverse, settled, ih.theta, ih.index, hh.theta, hh.index, bias_ih, bias_hh)
        return ops.backend_of(theta_ih).recurrent_forward_into(cell, x, h_0, c_0, y, kept if keep else None)

    h_n, c_n = forward_or_awake(layers, run)
    return y, _not_given(h_n, h_0, x), _not_given(c_n, c_0, x), kept


def _not_given(state: Tensor | None, given: Tensor | None, x: Tensor) -> Tensor:
    """A last state that is nobody's argument: operators may not return what they were given."""
    if state is None:
        return x.new_empty(0)
    return state.clone() if state is given else state


@recurrent.register_fake
def _(
    x: Tensor, h_0: Tensor, c_0: Tensor | None,
    theta_ih: Tensor, packed_rows_ih: Tensor, colptr_ih: Tensor, bias_ih: Tensor | None,
    theta_hh: Tensor, packed_rows_hh: Tensor, colptr_hh: Tensor, bias_hh: Tensor | None, lengths: Tensor | None,
    first_ih: int, first_hh: int, kind: str, hidden: int, reverse: bool, bound: bool, keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    steps, batch, _ = x.shape
    kept = x.new_empty(_kept_numbers(theta_ih, kind, steps, batch, hidden) if keep else 0)
    c_n = x.new_empty(0) if c_0 is None else x.new_empty(batch, hidden)
    return x.new_empty(steps, batch, hidden), x.new_empty(batch, hidden), c_n, kept


@torch.library.custom_op("wirebound::recurrent_backward", mutates_args=())
def recurrent_backward(
    dy: Tensor, dh_n: Tensor, dc_n: Tensor | None, kept: Tensor, x: Tensor, h_0: Tensor, c_0: Tensor | None,
    theta_ih: Tensor, packed_rows_ih: Tensor, colptr_ih: Tensor, bias_ih: Tensor | None,
    theta_hh: Tensor, packed_rows_hh: Tensor, colptr_hh: Tensor, bias_hh: Tensor | None, lengths: Tensor | None,
    first_ih: int, first_hh: int, kind: str, hidden: int, reverse: bool, bound: bool, need_dx: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to x, h_0, c_0, θ of W_ih and of W_hh, and their biases; empty where there is none."""
    layers = _layers(x, hidden, (theta_ih, packed_rows_ih, colptr_ih, first_ih), (theta_hh, packed_rows_hh, colptr_hh, first_hh), bound)
    settled = _settled(lengths, x)
    dormant = [layer.has_dormant for layer in layers]
    ih, hh = (layer.awake() if below else layer for layer, below in zip(layers, dormant, strict=True))
    cell = Recurrence(kind, hidden, reverse, settled, ih.theta, ih.index, hh.theta, hh.index, bias_ih, bias_hh)
    found = ops.backend_of(theta_ih).recurrent_backward_from(cell, x, h_0, c_0, kept, dy, dh_n, dc_n, need_dx)
    gradients = [
        layer.in_wiring(masked(own, layer, below), theta)
        for own, layer, below, theta in zip((found.dtheta_ih, found.dtheta_hh), layers, dormant, (theta_ih, theta_hh), strict=True)
    ]
    rest = [x.new_empty(0) if t is None else t.contiguous() for t in (found.dx, found.dh_0, found.dc_0, found.dbias_ih, found.dbias_hh)]
    return rest[0], rest[1], rest[2], gradients[0], gradients[1], rest[3], rest[4]


@recurrent_backward.register_fake
def _(
    dy: Tensor, dh_n: Tensor, dc_n: Tensor | None, kept: Tensor, x: Tensor, h_0: Tensor, c_0: Tensor | None,
    theta_ih: Tensor, packed_rows_ih: Tensor, colptr_ih: Tensor, bias_ih: Tensor | None,
    theta_hh: Tensor, packed_rows_hh: Tensor, colptr_hh: Tensor, bias_hh: Tensor | None, lengths: Tensor | None,
    first_ih: int, first_hh: int, kind: str, hidden: int, reverse: bool, bound: bool, need_dx: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    rows, none, of_state = GATES[kind] * hidden, 0, (x.shape[1], hidden)
    return (
        x.new_empty(x.shape if need_dx else none), x.new_empty(of_state), x.new_empty(none if c_0 is None else of_state),
        theta_ih.new_empty(theta_ih.shape), theta_hh.new_empty(theta_hh.shape),
        x.new_empty(none if bias_ih is None else rows), x.new_empty(none if bias_hh is None else rows),
    )  # fmt: skip


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.first_ih, ctx.first_hh, ctx.kind, ctx.hidden, ctx.reverse, ctx.bound, ctx.keep = inputs
    ctx.mark_non_differentiable(output[3])
    ctx.save_for_backward(*tensors, output[3])


def _backward(ctx: Any, dy: Tensor, dh_n: Tensor, dc_n: Tensor, dkept: Tensor) -> tuple[Tensor | None, ...]:
    if not ctx.keep:
        raise RuntimeError("a recurrent layer was traced without gradients: trace it with gradients enabled to train it")
    *tensors, kept = ctx.saved_tensors
    c_0, bias_ih, bias_hh = tensors[2], tensors[6], tensors[10]
    settings = (ctx.first_ih, ctx.first_hh, ctx.kind, ctx.hidden, ctx.reverse, ctx.bound)
    states = (dy, dh_n, None if c_0 is None else dc_n, kept)
    found = recurrent_backward(*states, *tensors, *settings, ctx.needs_input_grad[0])
    dx, dh_0, dc_0, dtheta_ih, dtheta_hh, dbias_ih, dbias_hh = found
    gradients: list[Tensor | None] = [
        dx if ctx.needs_input_grad[0] else None, dh_0, None if c_0 is None else dc_0,
        dtheta_ih, None, None, None if bias_ih is None else dbias_ih,
        dtheta_hh, None, None, None if bias_hh is None else dbias_hh, None,
    ]  # fmt: skip
    return (*gradients, *(None for _ in range(7)))


recurrent.register_autograd(_backward, setup_context=_setup)
recurrent_backward.register_autograd(refuse_second_derivative("recurrent"))
