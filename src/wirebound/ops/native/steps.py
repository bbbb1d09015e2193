"""Algorithm 1 by the C++ kernels: the update of θ, death and rebirth, and both for one wiring in one native call."""

import ctypes
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from wirebound.ops import structs
from wirebound.ops.faults import NOT_FINITE, WiringError, not_finite, raise_fault
from wirebound.ops.layout import Geometry
from wirebound.ops.native.calls import KERNELS, address, c_shapes, functions
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.reference.open_columns import OpenColumns
from wirebound.ops.reference.steps import ReferenceSteps
from wirebound.ops.rule import NO_STATE, Carried, Counts, DriftAndNoise, Rule, RuleKind, State, StepCounts, WiringArrays

_UPDATE, _DEAD, _STEP = functions("wb_update"), functions("wb_dead"), functions("wb_step")
_RULE_FIELDS = tuple(field.name for field in dataclasses.fields(Rule))
_MIN_DEAD = 1024  # room for the indices of the dead; more than that is asked for a second time
_NONE = torch.empty(0, dtype=torch.int64, device="cpu")
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by their bytes
_MOST_PREPARED = 64


def _one_by_one(tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        increment_version(tensor)


try:
    increment_version(())  # newer torch takes many at once
    _are_written: Callable[[Iterable[Tensor]], None] = increment_version
except (TypeError, AttributeError):
    _are_written = _one_by_one


def _fill_rule(c_rule: Any, rule: Rule) -> None:
    for name in _RULE_FIELDS:
        setattr(c_rule, name, getattr(rule, name))


def _c_drifts(drifts: Sequence[DriftAndNoise]) -> Any:
    return structs.array_of(structs.DriftAndNoise, len(drifts))(*(structs.DriftAndNoise(*drift) for drift in drifts))


def _c_shares(shares: Sequence[float] | None) -> Any:
    return None if shares is None else structs.array_of(ctypes.c_double, len(shares))(*shares)


def _require_state(state: State, theta: Tensor) -> None:
    """Refuse state of the optimiser that is not as θ is: users and other libraries can put anything there."""
    moments = (state.momentum, state.exp_avg, state.exp_avg_sq, state.max_exp_avg_sq)
    for array, dtype in (*((moment, theta.dtype) for moment in moments), (state.born, torch.int32)):
        if array is None:
            continue
        plain = array.layout is torch.strided and array.is_cpu and array.is_contiguous()
        if not plain or array.dtype is not dtype or array.shape != theta.shape or (array.numel() and not array.data_ptr()):
            found, wanted = f"{array.dtype} of shape {tuple(array.shape)} on {array.device}", f"{dtype} of shape {tuple(theta.shape)}"
            raise ValueError(f"the optimiser's state ({found}) must be {wanted} on the CPU, contiguous, as its θ is")


def _fill_bits(value: float, dtype: torch.dtype) -> int:
    """A number of this dtype as the integer with the same bytes."""
    if not dtype.is_floating_point:
        return int(value)
    number = torch.tensor([value], dtype=dtype, device="cpu")
    return int(number.view(_INTEGERS[number.element_size()]))


def _c_carried(carried: Carried, budget: int) -> Any:
    """The arrays that move with their connections, as the kernels read them."""
    found = structs.array_of(structs.Carried, len(carried))()
    for entry, (tensor, fill) in zip(found, carried, strict=True):
        size = tensor.element_size()
        if size not in _INTEGERS or tensor.numel() != budget or not tensor.is_contiguous() or not tensor.is_cpu:
            array = f"an array that moves with its connections ({tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device})"
            raise WiringError(f"{array} must be {budget} contiguous elements of 1, 2, 4 or 8 bytes on the CPU")
        entry.data, entry.size, entry.fill = tensor.data_ptr(), size, _fill_bits(fill, tensor.dtype) if fill else 0
    return found


class _Prepared:
    """The struct of a wiring, kept from step to step: most of a small step would be filling it. It owns no tensor.

    Whoever takes it has it alone until it is put back: the kernel reads it while other Python threads run.
    """

    def __init__(
        self, geometry: Geometry, theta: Tensor, key: list[int], carried: Carried, shares: Sequence[float] | None, state: State
    ) -> None:
        _require_state(state, theta)
        self.geometry, self.key, self.shares = geometry, key, shares
        self.rule: Rule | None = None
        self.drifts: Sequence[DriftAndNoise] = ()
        self.open_columns: OpenColumns | None = None
        seed, index, _, colptr, packed_rows, at = key[:6]
        _, n_in, n_out = c_shapes(geometry)
        self.counts = (ctypes.c_int64 * (3 * geometry.layers))()  # born, died, active
        counts = [ctypes.addressof(self.counts) + 8 * geometry.layers * part for part in range(3)]
        self.carried = _c_carried([(theta.detach(), 0.0), *carried], theta.numel())
        self._alive = [n_in, n_out, c_shares := _c_shares(shares)]
        task = self.task = structs.Step(
            budget=theta.numel(), layers=geometry.layers, n_in=ctypes.addressof(n_in), n_out=ctypes.addressof(n_out),
            colptr=colptr, packed_rows=packed_rows, theta=at,
            moment1=address(state.momentum if state.exp_avg is None else state.exp_avg),
            moment2=address(state.exp_avg_sq), moment2_max=address(state.max_exp_avg_sq), birth=address(state.born),
            carried=ctypes.addressof(self.carried), n_carried=len(self.carried), born=counts[0], died=counts[1],
            active=counts[2], wiring_index=index,
            shares=None if c_shares is None else ctypes.addressof(c_shares),
        )  # fmt: skip
        c_rule = self.c_rule = task.rule  # a view into the task
        c_rule.seed, c_rule.stream, c_rule.bound = seed, stream_of(Stream.NOISE, index), True
        self.at = ctypes.addressof(task)

    def set_rule(self, rule: Rule, drifts: Sequence[DriftAndNoise]) -> None:
        if self.rule is not rule:
            self.rule = rule
            _fill_rule(self.c_rule, rule)
        if self.drifts is not drifts:
            self.drifts, self._c_drifts = drifts, _c_drifts(drifts)
            self.task.drifts, self.task.n_drifts = ctypes.addressof(self._c_drifts), len(drifts)


    def set_open(self, open_columns: OpenColumns | None) -> None:
        self.open_columns = open_columns
        if open_columns is None:
            self.task.open_columns = self.task.open_counts = None
            return
        self._c_counts = structs.array_of(ctypes.c_int64, len(open_columns.counts))(*open_columns.counts)
        self.task.open_columns = open_columns.listed.data_ptr()
        self.task.open_counts = ctypes.addressof(self._c_counts)


_prepared: dict[int, _Prepared] = {}  # by the address of θ


class NativeSteps:
    def update_(
        self, theta: Tensor, grad: Tensor | None, rule: Rule, state: State, drifts: Sequence[DriftAndNoise],
        seed: int, stream: int, step: int, *, sign_bound: bool, clamp: bool,
    ) -> Tensor:  # fmt: skip
        # A struct of this call's own: another Python thread may be in the kernel with an equal rule.
        c_rule = structs.Rule(bound=sign_bound, clamp=clamp, stream=stream, seed=seed, step=step, clock=state.clock)
        _fill_rule(c_rule, rule)
        count = theta.numel()
        dead = torch.empty(min(count, max(_MIN_DEAD, count // 64)), dtype=torch.int64, device="cpu")
        grad = None if grad is None else grad.contiguous()
        _require_state(state, theta)
        first_moment = state.exp_avg if rule.kind is RuleKind.ADAM else state.momentum
        increment_version(theta)  # before the kernel writes behind autograd's back: an interrupt may follow on it at once
        found = _UPDATE[theta.dtype](
            ctypes.byref(c_rule), count, theta.data_ptr(), address(grad), address(first_moment),
            address(state.exp_avg_sq), address(state.max_exp_avg_sq), address(state.born),
            _c_drifts(drifts), len(drifts), dead.data_ptr(), dead.numel(), torch.get_num_threads(),
        )  # fmt: skip
        if found < 0:
            raise not_finite(step) if found == NOT_FINITE else raise_fault(found)
        if found > dead.numel():
            dead = torch.empty(found, dtype=torch.int64, device="cpu")
            _DEAD[theta.dtype](theta.data_ptr(), count, dead.data_ptr(), found)
        return dead[:found] if found else _NONE

    def rewire_(
        self, wiring: WiringArrays, carried: Carried, dead: Tensor, step: int, shares: Sequence[float] | None,
        open_columns: OpenColumns | None = None,
    ) -> tuple[Counts, Counts]:  # fmt: skip
        if open_columns is not None:
            return ReferenceSteps.rewire_(self, wiring, carried, dead, step, shares, open_columns)  # type: ignore[arg-type]
        geometry, colptr, packed_rows = wiring.geometry, wiring.colptr, wiring.packed_rows
        longs, n_in, n_out = c_shapes(geometry)
        budget, born, died = packed_rows.numel(), longs(), longs()
        moving = _c_carried(carried, budget)
        _are_written([packed_rows, colptr, *[tensor for tensor, _ in carried]])
        status = KERNELS.wb_rewire(
            budget, geometry.layers, n_in, n_out, colptr.data_ptr(), packed_rows.data_ptr(), moving, len(moving),
            dead.data_ptr(), dead.numel(), wiring.seed, wiring.index, step, _c_shares(shares), born, died, torch.get_num_threads(),
        )  # fmt: skip
        if status < 0:
            raise_fault(status)
        return list(born), list(died)

    def step_(
        self, wiring: WiringArrays, theta: Tensor, grad: Tensor | None, rule: Rule, state: State,
        drifts: Sequence[DriftAndNoise], carried: Carried, step: int, shares: Sequence[float] | None, *, clamp: bool,
        open_columns: OpenColumns | None = None,
    ) -> StepCounts:  # fmt: skip
        geometry, colptr, packed_rows, at = wiring.geometry, wiring.colptr, wiring.packed_rows, theta.data_ptr()
        key = [*wiring.origin, len(carried), colptr.data_ptr(), packed_rows.data_ptr(), at]
        for moved, _ in carried:
            key += (moved.data_ptr(), moved.element_size())
        if state is not NO_STATE:
            for moment in (state.momentum, state.exp_avg, state.exp_avg_sq, state.max_exp_avg_sq, state.born):
                key.append(0 if moment is None else moment.data_ptr())
        prepared = _prepared.pop(at, None)
        if prepared is None or prepared.key != key or prepared.geometry is not geometry or prepared.shares != shares:
            prepared = _Prepared(geometry, theta, key, carried, shares, state)
        if prepared.rule is not rule or prepared.drifts is not drifts:
            prepared.set_rule(rule, drifts)
        if prepared.open_columns is not open_columns:
            prepared.set_open(open_columns)
        for number, (moved, fill) in enumerate(carried, 1):
            prepared.carried[number].fill = _fill_bits(fill, moved.dtype) if fill else 0
        grad = None if grad is None else grad.contiguous()
        prepared.task.gradient, c_rule = address(grad), prepared.c_rule
        c_rule.step, c_rule.clock, c_rule.clamp = step, state.clock, clamp
        # Before the kernel writes behind autograd's back: an interrupt may follow on it at once.
        _are_written([theta, packed_rows, colptr, *[moved for moved, _ in carried]])
        replaced = _STEP[theta.dtype](prepared.at, torch.get_num_threads())
        if replaced < 0:
            raise not_finite(step) if replaced == NOT_FINITE else raise_fault(replaced)
        counts, layers = prepared.counts[:], geometry.layers
        if len(_prepared) >= _MOST_PREPARED:
            _prepared.clear()
        _prepared[at] = prepared
        return StepCounts(counts[:layers], counts[layers : 2 * layers], counts[2 * layers :])
