"""How far what was sampled is from what should be, and how far it would be from sampling error alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirebound_lab.theory.problems import Floats

_RESAMPLES = 1000
_QUANTILE = 0.999


def total_variation(p: Floats, q: Floats) -> float:
    """½ Σ |p − q|."""
    return float(0.5 * np.abs(p - q).sum())


@dataclass(frozen=True)
class Distance:
    """Total variation between frequencies and a law, beside what the right law would show."""

    value: float
    expected: float  # of the right law, by resampling independent groups of chains: the sampling error
    limit: float  # what the right law exceeds once in a thousand times

    @property
    def agrees(self) -> bool:
        return self.value <= self.limit

    def as_dict(self) -> dict[str, float]:
        return {"tv": self.value, "sampling_error": self.expected, "limit": self.limit}


def distance(counts: NDArray[np.generic], law: Floats, seed: int = 0) -> Distance:
    """Counts of independent groups, [groups, cells], against probabilities [cells]."""
    numbers: Floats = np.asarray(counts, dtype=float)
    seen = numbers.sum(0)
    if not seen.sum() > 0:
        raise ValueError("nothing was counted")
    frequency = seen / seen.sum()
    generator = np.random.default_rng(seed)
    groups = len(numbers)
    share = generator.multinomial(groups, np.full(groups, 1 / groups), size=_RESAMPLES)
    again = share @ numbers
    again /= again.sum(1, keepdims=True)
    spread = 0.5 * np.abs(again - frequency).sum(1)
    return Distance(total_variation(frequency, law), float(spread.mean()), float(np.quantile(spread, _QUANTILE)))
