"""A whole step of Algorithm 1 for one wiring, put together from its two halves; the native one is a single call."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.reference_rewire import layer_counts, rewire_
from wirebound.ops.reference_update import update_
from wirebound.ops.rule import DriftAndNoise, Rule, State, StepCounts


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
    theta = theta.detach()
    noise = stream_of(Stream.NOISE, wiring_index)
    dead = update_(theta, grad, rule, state, drifts, seed, noise, step, sign_bound=True, clamp=clamp)
    born, died = [0] * geometry.layers, [0] * geometry.layers
    if dead.numel():
        born, died = rewire_(geometry, colptr, packed_rows, [(theta, 0), *carried], dead, seed, wiring_index, step, shares)
    parts = theta.split(layer_counts(geometry, colptr))
    return StepCounts(born, died, [int((part >= 0).sum()) for part in parts])
