"""From runs to numbers: mean and spread over seeds, curves out of ``metrics.jsonl``."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirebound_lab.tables import deviation, plus_minus


@dataclass(frozen=True)
class Mean:
    """A number over seeds; ``spread`` is the sample standard deviation, None with one seed."""

    value: float
    spread: float | None
    count: int

    @property
    def low(self) -> float:
        return self.value - (self.spread or 0.0)

    @property
    def high(self) -> float:
        return self.value + (self.spread or 0.0)

    def percent(self, digits: int = 2) -> str:
        """As in "96.18 ± 0.24 %"."""
        return plus_minus(self.value, self.spread, digits, "%")

    def text(self, digits: int = 3) -> str:
        return plus_minus(self.value, self.spread, digits)


def mean_of(values: Iterable[float]) -> Mean | None:
    """None of nothing: runs may have diverged."""
    found = list(values)
    if not found:
        return None
    return Mean(statistics.fmean(found), deviation(found), len(found))


def mean_over(values: Iterable[float]) -> Mean:
    """The mean of at least one value."""
    mean = mean_of(values)
    assert mean is not None
    return mean


def mean_of_key(summaries: Sequence[dict[str, Any]], key: str) -> Mean | None:
    return mean_of(summary[key] for summary in summaries)


def point(x: float | None, mean: Mean, label: str | None = None) -> dict[str, Any]:
    """A point of a chart, with mean ∓ spread where there are several seeds."""
    found: dict[str, Any] = {"x": x, "y": mean.value}
    if mean.spread is not None:
        found |= {"low": mean.low, "high": mean.high}
    return found if label is None else {**found, "label": label}


def read_metrics(path: Path, kind: str) -> list[dict[str, Any]]:
    """The records of one kind, in the order of training."""
    records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [record for record in records if record["kind"] == kind]


def curve_over_seeds(curves: Sequence[Sequence[tuple[float, float]]]) -> list[dict[str, Any]]:
    """Curves over the same x, one for each seed, as one with its spread; x that not all of them have are left out."""
    by_x: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in curve:
            by_x.setdefault(x, []).append(y)
    return [point(x, mean_over(by_x[x])) for x in sorted(by_x) if len(by_x[x]) == len(curves)]


def grouped(values: Sequence[float], most: int) -> list[float]:
    """Neighbours joined to their mean, so that at most ``most`` values are left: a page need not have them all."""
    size = -(-len(values) // most) if values else 1
    return [statistics.fmean(values[i : i + size]) for i in range(0, len(values), size)]


def boxcar(values: Sequence[float], width: int) -> list[float]:
    """Each value as the mean of ``width`` values around it; at the ends, of those that exist."""
    half = width // 2
    return [statistics.fmean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]
