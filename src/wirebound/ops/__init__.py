"""The operations that everything stands on, each in two implementations with one signature.

``reference_*.py`` are pure torch and run on any device; ``native.py`` calls the C++ kernels for float32 and float64
tensors on the CPU. One switch picks: native where it can, the reference elsewhere. Replacing given connections by
given positions, which methods do once in many steps, has the torch version only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from wirebound.ops import (
    native,
    native_conv,
    native_random,
    native_recurrent,
    native_step,
    philox,
    reference_conv,
    reference_linear,
    reference_recurrent,
    reference_rewire,
    reference_step,
    reference_update,
    simple_recurrent,
    work,
)
from wirebound.ops.faults import DORMANT, raise_fault
from wirebound.ops.layout import Geometry, LayerIndex
from wirebound.ops.recurrence import Kept, Recurrence, RecurrentGradients
from wirebound.ops.reference_rewire import draw_in_layers, draw_newborns, replace_
from wirebound.ops.rule import DriftAndNoise, Rule, RuleKind, State, StepCounts
from wirebound.ops.window import ConvWindow

__all__ = [
    "ConvWindow",
    "DriftAndNoise",
    "Geometry",
    "LayerIndex",
    "Recurrence",
    "RecurrentGradients",
    "Rule",
    "RuleKind",
    "State",
    "StepCounts",
    "all_finite",
    "conv2d_backward",
    "conv2d_forward",
    "draw_in_layers",
    "draw_newborns",
    "index_is_good",
    "linear_backward",
    "linear_forward",
    "native_available",
    "native_in_use",
    "negative_signs",
    "normals",
    "recurrent_backward",
    "recurrent_forward",
    "replace_",
    "rewire_",
    "sample_sorted",
    "step_",
    "update_",
    "use",
    "uses_native",
]

_NATIVE_DTYPES = (torch.float32, torch.float64)
_allowed = True


def native_available() -> bool:
    """Whether the C++ kernels are built and loaded."""
    return native.available()


@contextmanager
def use(implementation: str) -> Iterator[None]:
    """Within the block, run ops by the ``"reference"`` or, where it can, by the ``"native"`` implementation."""
    global _allowed
    if implementation not in ("reference", "native"):
        raise ValueError(f"implementation (={implementation!r}) must be 'reference' or 'native'")
    before, _allowed = _allowed, implementation == "native"
    try:
        yield
    finally:
        _allowed = before


def native_in_use() -> bool:
    """Whether the C++ kernels are there and not switched off."""
    return _allowed and native.available()


def uses_native(tensor: Tensor) -> bool:
    """Whether ops on this tensor run in the C++ kernels."""
    return _allowed and tensor.is_cpu and tensor.dtype in _NATIVE_DTYPES and native.available()


def _random(device: torch.device) -> ModuleType:
    return native_random if _allowed and device.type == "cpu" and native.available() else philox


def normals(seed: int, stream: int, step: int, count: int, device: torch.device) -> Tensor:
    """The first ``count`` standard normals of a stream, float32."""
    return _random(device).normals(seed, stream, step, count, device)


def negative_signs(positions: Tensor, seed: int, wiring_index: int) -> Tensor:
    """Whether the constant sign of each position is -1."""
    return _random(positions.device).negative_signs(positions, seed, wiring_index)


def sample_sorted(n: int, k: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
    """k distinct numbers of [0, n), every subset equally likely, sorted."""
    return _random(device).sample_sorted(n, k, seed, stream, step, device)


def _require_active(theta: Tensor, index: LayerIndex) -> None:
    """What the kernels look for by themselves. Asking a graphics card would wait for it: ``Wiring.layer_theta`` has
    already read what is below 0 as 0 there."""
    if index.bound and theta.is_cpu and bool((theta < 0).any()):
        raise_fault(DORMANT)


def linear_forward(
    x: Tensor, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None
) -> Tensor:
    """y = x Wᵀ + bias for x of shape [batch, n_in] and the sparse W of one layer."""
    if work.watchers():
        work.tell(x, x.shape[0] * theta.numel())
    if uses_native(theta):
        return native.linear_forward(x, theta, index, n_out, bias)
    _require_active(theta, index)
    return reference_linear.linear_forward(x, theta, index, n_out, bias)


def linear_backward(
    x: Tensor,
    dy: Tensor,
    theta: Tensor,
    index: LayerIndex,
    need_dx: bool,
    need_dtheta: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients to the input and to θ at the active positions."""
    if work.watchers():
        work.tell(x, x.shape[0] * theta.numel() * (need_dx + need_dtheta))
    implementation = native if uses_native(theta) else reference_linear
    return implementation.linear_backward(x, dy, theta, index, need_dx, need_dtheta)


def conv2d_forward(x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None) -> Tensor:
    """The convolution of x [batch, channels, height, width] with the sparse weights of one layer, plus bias."""
    if work.watchers():
        outputs = window.out_size(x.shape[2], 0) * window.out_size(x.shape[3], 1)
        work.tell(x, x.shape[0] * outputs * theta.numel())
    if uses_native(theta):
        return native_conv.conv2d_forward(x, theta, index, window, bias)
    _require_active(theta, index)
    return reference_conv.conv2d_forward(x, theta, index, window, bias)


def conv2d_backward(
    x: Tensor,
    dy: Tensor,
    theta: Tensor,
    index: LayerIndex,
    window: ConvWindow,
    need_dx: bool,
    need_dtheta: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the convolution to its input and to θ at the active positions."""
    if work.watchers():
        work.tell(x, dy.shape[0] * dy.shape[2] * dy.shape[3] * theta.numel() * (need_dx + need_dtheta))
    implementation = native_conv if uses_native(theta) else reference_conv
    return implementation.conv2d_backward(x, dy, theta, index, window, need_dx, need_dtheta)


def recurrent_forward(cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, y: Tensor, keep: bool) -> Kept:
    """One direction of a recurrent layer over [steps, batch, n_in]: fills ``y``; the last states, and what the backward
    pass needs if ``keep``."""
    if work.watchers():
        work.tell(x, cell.samples(x) * (cell.theta_ih.numel() + cell.theta_hh.numel()))
    on_kernels = uses_native(cell.theta_ih)
    if not on_kernels:
        _require_active(cell.theta_ih, cell.index_ih)
        _require_active(cell.theta_hh, cell.index_hh)
    if cell.kind in simple_recurrent.KINDS:
        products = native if on_kernels else reference_linear
        return simple_recurrent.recurrent_forward(products, cell, x, h_0, y, keep)
    implementation = native_recurrent if on_kernels else reference_recurrent
    return implementation.recurrent_forward(cell, x, h_0, c_0, y, keep)


def recurrent_backward(
    cell: Recurrence,
    x: Tensor,
    h_0: Tensor,
    c_0: Tensor | None,
    kept: tuple[Tensor, ...],
    dy: Tensor | None,
    dh_n: Tensor | None,
    dc_n: Tensor | None,
    need_dx: bool,
    watched: bool,
) -> RecurrentGradients:
    """All gradients of such a pass, by backpropagation through time."""
    if work.watchers():
        work.tell(x, cell.samples(x) * ((1 + need_dx) * cell.theta_ih.numel() + 2 * cell.theta_hh.numel()))
    if cell.kind in simple_recurrent.KINDS:
        products = native if uses_native(cell.theta_ih) else reference_linear
        return simple_recurrent.recurrent_backward(products, cell, x, h_0, kept, dy, dh_n, need_dx, watched)
    implementation = native_recurrent if uses_native(cell.theta_ih) else reference_recurrent
    return implementation.recurrent_backward(cell, x, h_0, c_0, kept, dy, dh_n, dc_n, need_dx, watched)


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
    """One step of Algorithm 1 up to the deaths, in place; the sorted indices of the dead."""
    implementation = native if uses_native(theta) else reference_update
    return implementation.update_(
        theta, grad, rule, state, drifts, seed, stream, step, sign_bound=sign_bound, clamp=clamp
    )


def index_is_good(geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> bool | None:
    """Whether packed_rows and colptr, of the right types and lengths, are an index of ``budget`` connections in these matrices.

    None where there is no kernel to ask: the reference is ``wiring/fault.py``, which also says what is wrong.
    """
    if _allowed and native.available() and packed_rows.is_cpu and colptr.is_cpu:
        return native.index_is_good(geometry, budget, packed_rows, colptr)
    return None


def all_finite(values: Tensor) -> bool:
    """Whether no number is infinite or NaN."""
    return native.all_finite(values) if uses_native(values) else bool(torch.isfinite(values).all())


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
    """Replace the dead by newborns, in place, all arrays along; (born, died) of each layer."""
    implementation = native if uses_native(carried[0][0]) else reference_rewire
    return implementation.rewire_(geometry, colptr, packed_rows, carried, dead, seed, wiring_index, step, shares)


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
    """``update_`` and then ``rewire_`` for who died, in place; what happened in each layer.

    ``carried`` are what moves along beside θ.
    """
    implementation = native_step if uses_native(theta) else reference_step
    return implementation.step_(
        geometry, colptr, packed_rows, theta, grad, rule, state, drifts, carried, seed, wiring_index, step, shares, clamp=clamp
    )
