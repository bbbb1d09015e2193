"""A whole step of Algorithm 1 for one wiring in one native call: update, deaths, births."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from wirebound.ops import structs
from wirebound.ops.faults import NOT_FINITE, not_finite, raise_fault
from wirebound.ops.layout import Geometry
from wirebound.ops.native import address, c_shapes, fill_bits, fill_rule, functions, one_carried, require_state
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.rule import DriftAndNoise, Rule, State, StepCounts

_STEP = functions("wb_step")
_MOST_PREPARED = 64


class _Prepared:
    """The struct of a wiring, kept from step to step: most of a small step would be filling it.

    It owns no tensor. Whoever takes it has just compared the addresses in it with those of the tensors, and has it for
    itself until it is put back: the kernel reads it while other Python threads run.
    """

    def __init__(
        self,
        geometry: Geometry,
        budget: int,
        key: list[int],
        carried: Sequence[tuple[int, int, int]],
        shares: Sequence[float] | None,
        state: State,
    ) -> None:
        self.geometry, self.key, self.shares = geometry, key, shares
        self.rule: Rule | None = None
        self.drifts: Sequence[DriftAndNoise] = ()
        seed, index, _, colptr, packed_rows, theta = key[:6]
        longs, n_in, n_out = c_shapes(geometry)
        self.born, self.died, self.active = longs(), longs(), longs()
        self.carried = (structs.Carried * len(carried))(*(structs.Carried(*moved) for moved in carried))
        self._alive: list[Any] = [n_in, n_out]
        task = self.task = structs.Step(
            budget=budget,
            layers=geometry.layers,
            n_in=ctypes.addressof(n_in),
            n_out=ctypes.addressof(n_out),
            colptr=colptr,
            packed_rows=packed_rows,
            theta=theta,
            moment1=address(state.momentum if state.exp_avg is None else state.exp_avg),
            moment2=address(state.exp_avg_sq),
            moment2_max=address(state.max_exp_avg_sq),
            birth=address(state.born),
            carried=ctypes.addressof(self.carried),
            n_carried=len(carried),
            born=ctypes.addressof(self.born),
            died=ctypes.addressof(self.died),
            active=ctypes.addressof(self.active),
            wiring_index=index,
        )
        numbers = self.numbers = task.rule  # a view into the task
        numbers.seed, numbers.stream, numbers.bound = seed, stream_of(Stream.NOISE, index), True
        if shares is not None:
            c_shares = (ctypes.c_double * geometry.layers)(*shares)
            self._alive.append(c_shares)
            task.shares = ctypes.addressof(c_shares)
        self.at = ctypes.addressof(task)

    def set_rule(self, rule: Rule) -> None:
        self.rule = rule
        fill_rule(self.numbers, rule)

    def set_drifts(self, drifts: Sequence[DriftAndNoise]) -> None:
        self.drifts = drifts
        self._c_walks = (structs.DriftAndNoise * len(drifts))(*(structs.DriftAndNoise(*drift) for drift in drifts))
        self.task.drifts, self.task.n_drifts = ctypes.addressof(self._c_walks), len(drifts)


_prepared: dict[int, _Prepared] = {}  # by the address of θ


def step_(
    geometry: Geometry,
    colptr: Tensor,
    packed_rows: Tensor,
    theta: Tensor,
    grad: Tensor | None,
    rule: Rule,
    state: State,
    drifts: Sequence[DriftAndNoise],
    carried: Sequence[tuple[Tensor, float]],
    seed: int,
    wiring_index: int,
    step: int,
    shares: Sequence[float] | None,
    *,
    clamp: bool,
) -> StepCounts:
    at = theta.data_ptr()
    key = [seed, wiring_index, len(carried), colptr.data_ptr(), packed_rows.data_ptr(), at]
    for moved, _ in carried:
        key += (moved.data_ptr(), moved.element_size())
    for moment in (state.momentum, state.exp_avg, state.exp_avg_sq, state.max_exp_avg_sq, state.born):
        key.append(0 if moment is None else moment.data_ptr())
    prepared = _prepared.pop(at, None)
    if prepared is None or prepared.key != key or prepared.geometry is not geometry or prepared.shares != shares:
        budget = theta.numel()
        require_state(state, theta)
        moving = [one_carried(tensor, fill, budget) for tensor, fill in ((theta.detach(), 0.0), *carried)]
        prepared = _Prepared(geometry, budget, key, moving, shares, state)
    if prepared.rule is not rule:
        prepared.set_rule(rule)
    if prepared.drifts is not drifts:
        prepared.set_drifts(drifts)
    for number, (moved, fill) in enumerate(carried, 1):
        prepared.carried[number].fill = fill_bits(fill, moved.dtype) if fill else 0
    if grad is not None:
        grad = grad.contiguous()
    prepared.task.gradient = None if grad is None else grad.data_ptr()
    numbers = prepared.numbers
    numbers.step, numbers.clock, numbers.clamp = step, state.clock, clamp
    # The kernel writes behind autograd's back. An interrupt may follow on it at once, so what it may write is marked
    # before.
    for moved in (theta, packed_rows, colptr, *(moved for moved, _ in carried)):
        increment_version(moved)
    replaced = _STEP[theta.dtype](prepared.at, torch.get_num_threads())
    if replaced < 0:
        raise not_finite(step) if replaced == NOT_FINITE else raise_fault(replaced)
    counts = StepCounts(list(prepared.born), list(prepared.died), list(prepared.active))
    if len(_prepared) >= _MOST_PREPARED:
        _prepared.clear()
    _prepared[at] = prepared
    return counts
