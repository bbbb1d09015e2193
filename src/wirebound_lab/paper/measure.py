"""What is measured of runs, as points against connectivity, curves over iterations and tables: accuracy, or error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wirebound_lab.paper.charts import METHOD_NAMES, axis, lines, series
from wirebound_lab.paper.curves import Mean, curve_over_seeds, mean_of_key, point
from wirebound_lab.paper.figure import Outcomes
from wirebound_lab.paper.job import Job, Summary

Point = dict[str, Any]


@dataclass(frozen=True)
class Measure:
    """A share of right or wrong answers: its place in a summary and its name, and both in the records of epochs."""

    key: str
    label: str
    record: str
    record_label: str

    def mean(self, summaries: Sequence[Summary]) -> Mean | None:
        return mean_of_key(summaries, self.key)

    def points(self, groups: Sequence[Sequence[Summary]]) -> list[Point]:
        """One point for each group of seeds, against connectivity as the method counts it, from sparse to dense."""
        found = []
        for summaries in groups:
            mean, connectivity = self.mean(summaries), mean_of_key(summaries, "connectivity")
            if mean is not None and connectivity is not None and connectivity.value > 0:
                label = f"{mean.percent()} at {100 * connectivity.value:.2g} %, {mean.count} seed(s)"
                found.append(point(connectivity.value, mean, label))
        return sorted(found, key=lambda p: p["x"])

    def over_iterations(self, id: str, title: str, shown: Mapping[str, Sequence[Job]], done: Outcomes) -> dict[str, Any]:
        """After each epoch, against the number of parameter updates; mean and spread over the seeds of each method."""

        def curve(job: Job) -> list[tuple[float, float]]:
            records = done.metrics(job, "epoch")
            return [(r["step"], r[self.record]) for r in records if r.get(self.record) is not None]

        curves = {method: curve_over_seeds([curve(job) for job in done.ended(jobs)]) for method, jobs in shown.items()}
        x, y = axis("iteration"), axis(self.record_label, percent=True)
        return lines(id, title, x, y, [series(method, found) for method, found in curves.items()])

    def table(self, points: Mapping[str, Sequence[Point]], dense: Mean | None, title: str = "All points") -> dict[str, Any]:
        rows = [[METHOD_NAMES.get(m, m), f"{100 * p['x']:.3g} %", _mean(p).percent()] for m, found in points.items() for p in found]
        rows += [[METHOD_NAMES["dense"], "100 %", dense.percent()]] if dense else []
        return {"title": title, "columns": ["method", "connectivity", self.label], "rows": rows}


def _mean(p: Point) -> Mean:
    return Mean(p["y"], (p["high"] - p["low"]) / 2 if "low" in p else None, 1)


ACCURACY = Measure("test_accuracy", "test accuracy", "test_accuracy", "test accuracy")
ERROR = Measure("test_error_at_best_validation", "test error", "validation_error", "validation error")
