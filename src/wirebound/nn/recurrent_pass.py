"""The pass of sequences, which may differ in length, through one recurrent layer, as one node of the autograd graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from wirebound import ops
from wirebound.nn.inputs import in_memory, refuse_second_derivative, require_kept
from wirebound.nn.linear import LinearGradient
from wirebound.nn.matrix import SparseMatrix
from wirebound.ops.faults import DormantThetaError

Outcome = tuple[Tensor, Tensor, Tensor | None]  # y, h_n, c_n


@dataclass(frozen=True)
class Direction:
    """The matrices and biases of one direction of one layer."""

    ih: SparseMatrix
    hh: SparseMatrix
    bias_ih: Tensor | None
    bias_hh: Tensor | None

    def parameters(self) -> list[Tensor | None]:
        """As autograd sees them."""
        thetas = [matrix.fast_wiring.layer_theta(matrix.layer_id) for matrix in (self.ih, self.hh)]
        return [*thetas, self.bias_ih, self.bias_hh]


_EACH = 4  # parameters of a direction


def _at(tensor: Tensor | None, number: int) -> Tensor | None:
    return None if tensor is None else tensor[number]


@dataclass(frozen=True)
class Pass:
    """One layer, and how sequences go through it; x and y are [steps, batch, features]."""

    kind: str
    hidden: int
    directions: Sequence[Direction]
    lengths: Tensor | None
    batch_first: bool  # how y lies in memory

    def cells(self, parameters: Sequence[Tensor | None]) -> list[ops.Recurrence]:
        found = []
        for d, one in enumerate(self.directions):
            theta_ih, theta_hh, bias_ih, bias_hh = cast(Any, parameters[_EACH * d : _EACH * (d + 1)])
            ih, hh = (matrix.fast_wiring.layer_index(matrix.layer_id) for matrix in (one.ih, one.hh))
            shape = (self.kind, self.hidden, d == 1, self.lengths)
            found.append(ops.Recurrence(*shape, theta_ih, ih, theta_hh, hh, bias_ih, bias_hh))
        return found

    def forward(
        self, cells: Sequence[ops.Recurrence], x: Tensor, h_0: Tensor, c_0: Tensor | None, keep: bool
    ) -> tuple[Outcome, list[Tensor]]:
        """(y, h_n, c_n), and what the backward pass needs, as many tensors for each direction."""
        steps, batch, _ = x.shape
        width = len(cells) * self.hidden
        y = x.new_empty(batch, steps, width).transpose(0, 1) if self.batch_first else x.new_empty(steps, batch, width)
        outcomes = []
        for d, cell in enumerate(cells):
            own = y[:, :, d * self.hidden : (d + 1) * self.hidden]
            outcomes.append(ops.backend_of(cell.theta_ih).recurrent_forward(cell, x, h_0[d], _at(c_0, d), own, keep))
        h_n = torch.stack([o.h_n for o in outcomes])
        c_n = None if c_0 is None else torch.stack([o.c_n for o in outcomes if o.c_n is not None])
        return (y, h_n, c_n), [tensor for o in outcomes for tensor in o.kept]

    def watch(self, cell: int, x: Tensor, gradients: ops.RecurrentGradients) -> None:
        """Leave the sources of all gradients with the wirings that someone watches."""
        watched = gradients.watched
        if watched is None:
            return
        rows = x.reshape(-1, x.shape[2])
        sources = (LinearGradient(rows, watched.gates_ih), LinearGradient(watched.h_before, watched.gates_hh))
        for matrix, source in zip((self.directions[cell].ih, self.directions[cell].hh), sources, strict=True):
            if (watch := matrix.fast_wiring.watch) is not None:
                watch.setdefault(matrix.layer_id, []).append(source)


class _Recurrent(torch.autograd.Function):
    """Exact gradients to the input, to the initial states, to θ at the active positions, and to the biases."""

    @staticmethod
    def forward(
        ctx: Any, job: Pass, x: Tensor, h_0: Tensor, c_0: Tensor | None, *parameters: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        ctx.job, ctx.cells = job, job.cells(parameters)
        outcome, kept = job.forward(ctx.cells, x, h_0, c_0, keep=True)
        ctx.set_materialize_grads(False)
        # The parameters are among them only to notice if someone changes them before the backward pass.
        saved = x, h_0, c_0, *parameters, *kept
        ctx.save_for_backward(*saved)
        ctx.shapes = [tensor.shape for tensor in saved if tensor is not None]
        return outcome

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("a recurrent sparse layer")
        job: Pass = ctx.job
        cells: list[ops.Recurrence] = ctx.cells
        saved = ctx.saved_tensors
        require_kept(saved, ctx.shapes, cells[0].theta_ih)
        x, h_0, c_0 = saved[:3]
        kept = saved[3 + _EACH * len(cells) :]
        each = len(kept) // len(cells)
        dy, dh_n, dc_n = (None if gradient is None else in_memory(gradient) for gradient in grads)
        watched = any(m.fast_wiring.watch is not None for one in job.directions for m in (one.ih, one.hh))
        need_dx = ctx.needs_input_grad[1]
        dx: Tensor | None = None
        dh_0, dc_0, gradients = [], [], []
        for d, cell in enumerate(cells):
            own_dy = None if dy is None else dy[:, :, d * job.hidden : (d + 1) * job.hidden]
            start = (h_0[d], _at(c_0, d), kept[each * d : each * (d + 1)])
            found = ops.backend_of(cell.theta_ih).recurrent_backward(cell, x, *start, own_dy, _at(dh_n, d), _at(dc_n, d), need_dx, watched)
            job.watch(d, x, found)
            dx = found.dx if dx is None or found.dx is None else dx.add_(found.dx)
            dh_0.append(found.dh_0)
            dc_0.append(found.dc_0)
            gradients += [found.dtheta_ih, found.dtheta_hh, found.dbias_ih, found.dbias_hh]
        all_dc_0 = None if c_0 is None else torch.stack(cast(list[Tensor], dc_0))
        return (None, dx, torch.stack(dh_0), all_dc_0, *gradients)


def run_layer(job: Pass, x: Tensor, h_0: Tensor, c_0: Tensor | None) -> Outcome:
    """(y, h_n, c_n) of one layer; c is None for a GRU."""
    parameters = [tensor for direction in job.directions for tensor in direction.parameters()]
    try:
        return _run(job, x, h_0, c_0, parameters)
    except DormantThetaError:
        for d, one in enumerate(job.directions):
            for at, matrix in enumerate((one.ih, one.hh), _EACH * d):
                parameters[at] = matrix.fast_wiring.dormant_as_zero(cast(Tensor, parameters[at]))
        return _run(job, x, h_0, c_0, parameters)


def _run(job: Pass, x: Tensor, h_0: Tensor, c_0: Tensor | None, parameters: Sequence[Tensor | None]) -> Outcome:
    if torch.is_grad_enabled():
        return cast(Outcome, _Recurrent.apply(job, x, h_0, c_0, *parameters))
    return job.forward(job.cells(parameters), x, h_0, c_0, keep=False)[0]


def settle_lengths(x: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Steps of each sequence of x [time, batch, features], int64 on the CPU; None where all have all of them."""
    steps, batch = x.shape[:2]
    if lengths is None and mask is None:
        return None
    if lengths is not None and mask is not None:
        raise ValueError("at most one of lengths and mask may be given")
    if mask is not None:
        if mask.dtype is not torch.bool or tuple(mask.shape) != (batch, steps):
            raise ValueError(
                f"mask (={mask.dtype}, shape {tuple(mask.shape)}) must be boolean of shape (batch, time) = {(batch, steps)}"
            )
        if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            raise ValueError("mask must be true up to each sequence's end and false beyond: gaps are not supported")
        settled = mask.sum(1)
    else:
        settled = torch.as_tensor(lengths)
        if settled.is_floating_point() or settled.dtype is torch.bool or tuple(settled.shape) != (batch,):
            raise ValueError(
                f"lengths (={settled.dtype}, shape {tuple(settled.shape)}) must be whole numbers of shape (batch,) = {(batch,)}"
            )
    settled = settled.detach().to("cpu", torch.int64).contiguous()
    if batch:
        shortest, longest = int(settled.min()), int(settled.max())
        if shortest < 0 or longest > steps:
            raise ValueError(f"lengths (from {shortest} to {longest}) must be in [0, {steps}], the steps of the input")
        if shortest == steps:
            return None
    return settled


def packed_like(y: Tensor, packed: PackedSequence, lengths: Tensor, batch_first: bool) -> PackedSequence:
    """Outputs [time, batch, features], or [batch, time, features], in the shape in which their input came."""
    order = packed.sorted_indices
    if order is not None:
        y, lengths = y.index_select(0 if batch_first else 1, order), lengths[order.cpu()]
    data = pack_padded_sequence(y, lengths, batch_first).data
    return PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)
