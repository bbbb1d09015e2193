"""The drifts of a step where layers differ: by their ℓ1 and temperature, by rates of their own, or by being frozen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from wirebound.methods.langevin import pull_and_push
from wirebound.ops.rule import DriftAndNoise
from wirebound.schedule import Scalar
from wirebound.wiring import Wiring


def layer_drifts(
    wiring: Wiring, l1: Sequence[Scalar], temperature: Sequence[Scalar], step: int, lr: float
) -> list[DriftAndNoise]:
    """ηα and √(2ηT) of each layer of a wiring, by the layer's own η; one drift for all where they are the same.

    ``l1`` and ``temperature`` begin with those of the wiring's first layer.
    """
    rates = wiring.layer_rates
    own = [
        (*pull_and_push(alpha, heat, step, lr * factor), factor, decay, frozen)
        for factor, decay, frozen, alpha, heat in zip(
            rates.lr, rates.weight_decay, rates.frozen, l1, temperature, strict=False
        )
    ]
    if all(values == own[0] for values in own):
        return [DriftAndNoise(0, wiring.budget, *own[0])]
    return [DriftAndNoise(a, b, *values) for (a, b), values in zip(itertools.pairwise(wiring.bounds), own, strict=True)]
