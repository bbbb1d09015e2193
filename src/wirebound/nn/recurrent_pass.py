"""The pass of sequences through one recurrent layer, in all its directions, as one node of the autograd graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from wirebound import ops
from wirebound.nn.inputs import require_kept, settle_gradient
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
        theta_ih = self.ih.fast_wiring.layer_theta(self.ih.part)
        theta_hh = self.hh.fast_wiring.layer_theta(self.hh.part)
        return [theta_ih, theta_hh, self.bias_ih, self.bias_hh]


_EACH = 4  # parameters of a direction


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
        for number, one in enumerate(self.directions):
            theta_ih, theta_hh, bias_ih, bias_hh = parameters[_EACH * number : _EACH * (number + 1)]
            assert theta_ih is not None
            assert theta_hh is not None
            index_ih = one.ih.fast_wiring.layer_index(one.ih.part)
            index_hh = one.hh.fast_wiring.layer_index(one.hh.part)
            found.append(
                ops.Recurrence(
                    kind=self.kind,
                    hidden=self.hidden,
                    reverse=number == 1,
                    lengths=self.lengths,
                    theta_ih=theta_ih,
                    index_ih=index_ih,
                    theta_hh=theta_hh,
                    index_hh=index_hh,
                    bias_ih=bias_ih,
                    bias_hh=bias_hh,
                )
            )
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
            outcomes.append(ops.recurrent_forward(cell, x, h_0[d], None if c_0 is None else c_0[d], own, keep))
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
                watch.setdefault(matrix.part, []).append(source)


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
        if torch.is_grad_enabled():  # create_graph=True: our gradients would be constants in that graph
            raise RuntimeError("recurrent sparse layers have no second derivative: use create_graph=False")
        job: Pass = ctx.job
        cells: list[ops.Recurrence] = ctx.cells
        saved = ctx.saved_tensors
        require_kept(saved, ctx.shapes, cells[0].theta_ih)
        x, h_0, c_0 = saved[:3]
        kept = saved[3 + _EACH * len(cells) :]
        each = len(kept) // len(cells)
        dy, dh_n, dc_n = (None if gradient is None else settle_gradient(gradient) for gradient in grads)
        watched = any(
            matrix.fast_wiring.watch is not None for one in job.directions for matrix in (one.ih, one.hh)
        )
        need_dx = ctx.needs_input_grad[1]
        dx: Tensor | None = None
        dh_0, dc_0, gradients = [], [], []
        for d, cell in enumerate(cells):
            found = ops.recurrent_backward(
                cell,
                x,
                h_0[d],
                None if c_0 is None else c_0[d],
                kept[each * d : each * (d + 1)],
                None if dy is None else dy[:, :, d * job.hidden : (d + 1) * job.hidden],
                None if dh_n is None else dh_n[d],
                None if dc_n is None else dc_n[d],
                need_dx,
                watched,
            )
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
        for number, direction in enumerate(job.directions):
            for at, matrix in ((0, direction.ih), (1, direction.hh)):
                theta = parameters[_EACH * number + at]
                assert theta is not None
                parameters[_EACH * number + at] = matrix.fast_wiring.dormant_as_zero(theta)
        return _run(job, x, h_0, c_0, parameters)


def _run(job: Pass, x: Tensor, h_0: Tensor, c_0: Tensor | None, parameters: Sequence[Tensor | None]) -> Outcome:
    if torch.is_grad_enabled():
        return cast(Outcome, _Recurrent.apply(job, x, h_0, c_0, *parameters))
    return job.forward(job.cells(parameters), x, h_0, c_0, keep=False)[0]
