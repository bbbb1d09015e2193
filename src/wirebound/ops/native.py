"""The ops by the C++ kernels, under the signatures of the reference. ``csrc/wirebound.h`` says what each does."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from wirebound.ops import library, structs
from wirebound.ops.faults import NOT_FINITE, WiringError, not_finite, raise_fault
from wirebound.ops.layout import Geometry, LayerIndex
from wirebound.ops.rule import DriftAndNoise, Rule, RuleKind, State

_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_NONE = torch.empty(0, dtype=torch.int64, device="cpu")
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by their bytes
_RULE_FIELDS = tuple(field.name for field in dataclasses.fields(Rule))
_MIN_DEAD = 1024  # room for the indices of the dead; more than that is asked for a second time


_LIBRARY = library.load()


def available() -> bool:
    return _LIBRARY is not None


def functions(name: str) -> dict[torch.dtype, Any]:
    return {dtype: getattr(_LIBRARY, f"{name}_{suffix}", None) for dtype, suffix in _SUFFIX.items()}


# Looked up once: at small batches a step is mostly the overhead of its calls.
_threads = torch.get_num_threads
_LINEAR_FORWARD = functions("wb_linear_forward")
_LINEAR_BACKWARD = functions("wb_linear_backward")
_UPDATE = functions("wb_update")
_DEAD = functions("wb_dead")
_ALL_FINITE = functions("wb_all_finite")


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _row_major(tensor: Tensor) -> Tensor:
    """The tensor itself if its rows are contiguous, as the kernels read it; else a copy."""
    across, along = tensor.stride()
    return tensor if along == 1 and across >= tensor.shape[1] else tensor.contiguous()


# The two below are called more often than anything else, with little work at small batches: what they ask of tensors
# is counted in tenths of a microsecond.


def linear_forward(
    x: Tensor, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None
) -> Tensor:
    if not x.is_contiguous():
        x = _row_major(x)
    batch, n_in = x.shape
    y = x.new_empty(batch, n_out)
    packed_rows, colptr, start, end, first, _, bound = index
    require_length(theta, end - start)
    status = _LINEAR_FORWARD[theta.dtype](
        x.data_ptr(),
        x.stride(0),
        y.data_ptr(),
        n_out,
        batch,
        n_in,
        n_out,
        end - start,
        colptr.data_ptr() + 8 * first,
        packed_rows.data_ptr() + 4 * start,
        theta.data_ptr(),
        bound,
        None if bias is None else bias.data_ptr(),
        _threads(),
    )
    if status:
        raise_fault(status)
    return y


def linear_backward(
    x: Tensor,
    dy: Tensor,
    theta: Tensor,
    index: LayerIndex,
    need_dx: bool,
    need_dtheta: bool,
) -> tuple[Tensor | None, Tensor | None]:
    if not x.is_contiguous():
        x = _row_major(x)
    if not dy.is_contiguous():
        dy = _row_major(dy)
    batch, n_in = x.shape
    dx = x.new_empty(batch, n_in) if need_dx else None
    dtheta = torch.empty_like(theta) if need_dtheta else None
    packed_rows, colptr, start, end, first, _, _ = index
    status = _LINEAR_BACKWARD[theta.dtype](
        x.data_ptr(),
        x.stride(0),
        dy.data_ptr(),
        dy.stride(0),
        None if dx is None else dx.data_ptr(),
        n_in,
        None if dtheta is None else dtheta.data_ptr(),
        batch,
        n_in,
        dy.shape[1],
        end - start,
        colptr.data_ptr() + 8 * first,
        packed_rows.data_ptr() + 4 * start,
        theta.data_ptr(),
        _threads(),
    )
    if status:
        raise_fault(status)
    return dx, dtheta


def fill_rule(numbers: structs.Rule, rule: Rule) -> None:
    """The rule as the kernel reads it; what changes in every step is filled in by the caller."""
    for name in _RULE_FIELDS:
        setattr(numbers, name, getattr(rule, name))


def update_(
    theta: Tensor,
    grad: Tensor | None,
    rule: Rule,
    state: State,
    drifts: Sequence[DriftAndNoise],
    seed: int,
    stream: int,
    step: int,
    *,
    sign_bound: bool,
    clamp: bool,
) -> Tensor:
    # A struct of this call's own: another Python thread may be in the kernel with an equal rule.
    c_rule = structs.Rule(bound=sign_bound, clamp=clamp, stream=stream, seed=seed, step=step, clock=state.clock)
    fill_rule(c_rule, rule)
    c_drifts = (structs.DriftAndNoise * len(drifts))(*(structs.DriftAndNoise(*drift) for drift in drifts))
    count = theta.numel()
    dead = torch.empty(min(count, max(_MIN_DEAD, count // 64)), dtype=torch.int64, device="cpu")
    if grad is not None:
        grad = grad.contiguous()
    require_state(state, theta)
    first_moment = state.exp_avg if rule.kind is RuleKind.ADAM else state.momentum
    increment_version(theta)  # before the kernel writes behind autograd's back: an interrupt may follow on it at once
    found = _UPDATE[theta.dtype](
        ctypes.byref(c_rule),
        count,
        theta.data_ptr(),
        address(grad),
        address(first_moment),
        address(state.exp_avg_sq),
        address(state.max_exp_avg_sq),
        address(state.born),
        c_drifts,
        len(drifts),
        dead.data_ptr(),
        dead.numel(),
        torch.get_num_threads(),
    )
    if found == NOT_FINITE:
        raise not_finite(step)
    if found < 0:
        raise_fault(found)
    if found > dead.numel():
        dead = torch.empty(found, dtype=torch.int64, device="cpu")
        _DEAD[theta.dtype](theta.data_ptr(), count, dead.data_ptr(), found)
    return dead[:found] if found else _NONE


def all_finite(values: Tensor) -> bool:
    values = values.contiguous()
    return bool(_ALL_FINITE[values.dtype](values.data_ptr(), values.numel()))


def fill_bits(value: float, dtype: torch.dtype) -> int:
    """A number of this dtype as the integer with the same bytes."""
    if not dtype.is_floating_point:
        return int(value)
    number = torch.tensor([value], dtype=dtype, device="cpu")
    return int(number.view(_INTEGERS[number.element_size()]))


def one_carried(tensor: Tensor, fill: float, budget: int) -> tuple[int, int, int]:
    """An array that moves with its connections, as the kernels read it."""
    size = tensor.element_size()
    if size not in _INTEGERS or tensor.numel() != budget or not tensor.is_contiguous() or not tensor.is_cpu:
        raise WiringError(
            f"an array that moves with its connections ({tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}) "
            f"must be {budget} contiguous elements of 1, 2, 4 or 8 bytes on the CPU"
        )
    return tensor.data_ptr(), size, fill_bits(fill, tensor.dtype) if fill else 0


def require_state(state: State, theta: Tensor) -> None:
    """Refuse state of the optimiser that is not as θ is: users and other libraries can put anything there."""
    moments = (state.momentum, state.exp_avg, state.exp_avg_sq, state.max_exp_avg_sq)
    for array, dtype in (*((moment, theta.dtype) for moment in moments), (state.born, torch.int32)):
        if array is None:
            continue
        plain = array.layout is torch.strided and array.is_cpu and array.is_contiguous()
        if not plain or array.dtype is not dtype or array.shape != theta.shape or (array.numel() and not array.data_ptr()):
            raise ValueError(
                f"the optimiser's state ({array.dtype} of shape {tuple(array.shape)} on {array.device}) must be {dtype} of "
                f"shape {tuple(theta.shape)} on the CPU, contiguous, as its θ is"
            )


def require_length(theta: Tensor, connections: int) -> None:
    if theta.numel() != connections:
        raise WiringError(f"θ of a layer has {theta.numel()} elements, its wiring {connections} connections")


@functools.lru_cache(maxsize=256)
def c_shapes(geometry: Geometry) -> tuple[Any, Any, Any]:
    """An array type with one integer for each layer, and the shapes in it."""
    longs = ctypes.c_int64 * geometry.layers
    return longs, longs(*geometry.n_in), longs(*geometry.n_out)


def index_is_good(geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> bool:
    _, n_in, n_out = c_shapes(geometry)
    packed_rows, colptr = packed_rows.contiguous(), colptr.contiguous()
    assert _LIBRARY is not None
    return bool(
        _LIBRARY.wb_wiring_is_good(budget, geometry.layers, n_in, n_out, colptr.data_ptr(), packed_rows.data_ptr())
    )


def rewire_(
    geometry: Geometry,
    colptr: Tensor,
    packed_rows: Tensor,
    carried: Sequence[tuple[Tensor, float]],
    dead: Tensor,
    seed: int,
    wiring_index: int,
    step: int,
    shares: Sequence[float] | None,
) -> tuple[list[int], list[int]]:
    layers = geometry.layers
    longs, n_in, n_out = c_shapes(geometry)
    budget = packed_rows.numel()
    c_carried = (structs.Carried * len(carried))(*(structs.Carried(*one_carried(*moved, budget)) for moved in carried))
    born, died = longs(), longs()
    assert _LIBRARY is not None
    for tensor in (packed_rows, colptr, *(tensor for tensor, _ in carried)):
        increment_version(tensor)
    status = _LIBRARY.wb_rewire(
        budget,
        layers,
        n_in,
        n_out,
        colptr.data_ptr(),
        packed_rows.data_ptr(),
        c_carried,
        len(carried),
        dead.data_ptr(),
        dead.numel(),
        seed,
        wiring_index,
        step,
        None if shares is None else (ctypes.c_double * layers)(*shares),
        born,
        died,
        torch.get_num_threads(),
    )
    if status < 0:
        raise_fault(status)
    return list(born), list(died)
