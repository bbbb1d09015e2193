"""From runs to what a page shows: means over seeds, curves, and the charts and tables made of them."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wirebound_lab.paper.job import Job, Outcomes, Summary
from wirebound_lab.tables import deviation, plus_minus

Piece = dict[str, Any]  # of experiment.json
METHOD_NAMES = {
    "deep-r": "DEEP R", "soft-deep-r": "soft-DEEP R", "fixed": "fixed connectivity", "dense": "fully connected",
    "pruning": "pruning", "l1-shrinkage": "ℓ1-shrinkage",
}  # fmt: skip


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

    def text(self) -> str:
        return plus_minus(self.value, self.spread, 3)


def mean_of(values: Iterable[float]) -> Mean | None:
    """None of nothing: runs may have diverged."""
    found = list(values)
    return Mean(statistics.fmean(found), deviation(found), len(found)) if found else None


def mean_over(values: Iterable[float]) -> Mean:
    """The mean of at least one value."""
    mean = mean_of(values)
    assert mean is not None
    return mean


def reaches(mean: Mean, figure: float) -> bool:
    """Whether the mean, rounded to one decimal in percent as the paper's figures are, is no less."""
    return round(100 * mean.value, 1) >= round(100 * figure, 1)


# Curves and charts


def point(x: float | None, mean: Mean, label: str | None = None) -> Piece:
    """A point of a chart, with mean ∓ spread where there are several seeds."""
    found: Piece = {"x": x, "y": mean.value}
    if mean.spread is not None:
        found |= {"low": mean.low, "high": mean.high}
    return found if label is None else {**found, "label": label}


def curve_over_seeds(curves: Sequence[Sequence[tuple[float, float]]]) -> list[Piece]:
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


def axis(label: str, scale: str = "linear", percent: bool = False) -> Piece:
    return {"label": label, "scale": scale, "percent": percent}


CONNECTIVITY = axis("connectivity", "log", percent=True)


def lines(id: str, title: str, x: Piece, y: Piece, series: Sequence[Piece]) -> Piece:
    """A chart; series without points are left out."""
    return {"id": id, "kind": "lines", "title": title, "x": x, "y": y, "series": [s for s in series if s["points"]]}


def series(method: str, points: Sequence[Piece], style: str = "line", name: str | None = None) -> Piece:
    """``method`` decides the colour, ``name`` what it is called."""
    return {"name": name or METHOD_NAMES.get(method, method), "method": method, "style": style, "points": list(points)}


def rule(method: str, mean: Mean | None, name: str | None = None) -> Piece:
    """A horizontal line over the whole width."""
    return series(method, [] if mean is None else [point(None, mean)], "rule", name)


@dataclass(frozen=True)
class Measure:
    """A share of right or wrong answers: its place in a summary and its name, and both in the records of epochs."""

    key: str
    label: str
    record: str
    record_label: str

    def points(self, groups: Sequence[Sequence[Summary]]) -> list[Piece]:
        """One point for each group of seeds, against connectivity as the method counts it, from sparse to dense."""
        found = []
        for summaries in groups:
            mean, connectivity = (mean_of(s[key] for s in summaries) for key in (self.key, "connectivity"))
            if mean is not None and connectivity is not None and connectivity.value > 0:
                label = f"{mean.percent()} at {100 * connectivity.value:.2g} %, {mean.count} seed(s)"
                found.append(point(connectivity.value, mean, label))
        return sorted(found, key=lambda p: p["x"])

    def against_connectivity(self, id: str, title: str, points: Mapping[str, Sequence[Piece]], *more: Piece) -> Piece:
        """The points of each method; soft-DEEP R's connectivity is the highest it ever met."""
        found = [series(m, p, "points" if m in ("pruning", "l1-shrinkage") else "line") for m, p in points.items()]
        title += " (soft-DEEP R: the highest ever met)"
        return lines(id, title, CONNECTIVITY, axis(self.label, percent=True), [*found, *more])

    def over_iterations(self, id: str, title: str, shown: Mapping[str, Sequence[Job]], done: Outcomes) -> Piece:
        """After each epoch, against the number of parameter updates; mean and spread over the seeds of each method."""

        def curve(job: Job) -> list[tuple[float, float]]:
            records = done.metrics(job, "epoch")
            return [(r["step"], r[self.record]) for r in records if r.get(self.record) is not None]

        curves = {method: curve_over_seeds([curve(job) for job in done.ended(jobs)]) for method, jobs in shown.items()}
        x, y = axis("iteration"), axis(self.record_label, percent=True)
        return lines(id, title, x, y, [series(method, found) for method, found in curves.items()])

    def table(self, points: Mapping[str, Sequence[Piece]], dense: Mean | None, title: str = "All points") -> Piece:
        def cells(method: str, p: Piece) -> list[str]:
            mean = Mean(p["y"], (p["high"] - p["low"]) / 2 if "low" in p else None, 1)
            return [METHOD_NAMES.get(method, method), f"{100 * p['x']:.3g} %", mean.percent()]

        rows = [cells(method, p) for method, found in points.items() for p in found]
        rows += [[METHOD_NAMES["dense"], "100 %", dense.percent()]] if dense else []
        return {"title": title, "columns": ["method", "connectivity", self.label], "rows": rows}


ACCURACY = Measure("test_accuracy", "test accuracy", "test_accuracy", "test accuracy")
ERROR = Measure("test_error_at_best_validation", "test error", "validation_error", "validation error")
