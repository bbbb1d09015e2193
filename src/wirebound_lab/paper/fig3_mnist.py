"""The MNIST panel of figure 3: every network of every scan is a point; none is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wirebound_lab.paper import mnist_jobs as mnist
from wirebound_lab.paper.charts import METHOD_NAMES, axis, finding, lines, series
from wirebound_lab.paper.fig5 import grid_jobs
from wirebound_lab.paper.figure import Drawn, Outcomes, Part, Scale
from wirebound_lab.paper.job import Job, TrainJob
from wirebound_lab.paper.measure import ACCURACY

_VERY_LOW = 0.006  # connectivity
_LARGER = 0.05


class MnistComparison(Part):
    """Accuracy against connectivity at the end (soft-DEEP R: the highest), and connectivity over iterations."""

    def runs(self, scale: Scale, seeds: int) -> dict[str, list[list[TrainJob]]]:
        """By method, the runs of each point."""
        count = mnist.scan_seeds(scale, seeds)
        return {
            "deep-r": [[mnist.deep_r(scale, level, s) for s in range(seeds)] for level in mnist.levels(scale)],
            "soft-deep-r": [[mnist.soft(scale, *at, s) for s in range(count)] for at in mnist.soft_points(scale)],
            "pruning": list(grid_jobs(scale, seeds).values()),
            "l1-shrinkage": [[mnist.l1_shrinkage(scale, n, s) for s in range(count)] for n in mnist.exponents(scale)],
        }

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return [job for groups in self.runs(scale, seeds).values() for jobs in groups for job in jobs]

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        runs = self.runs(scale, seeds)
        points = {method: ACCURACY.points([done.of(jobs) for jobs in groups]) for method, groups in runs.items()}
        styles = {"deep-r": "line", "soft-deep-r": "line"}
        scatter = lines(
            "mnist-accuracy",
            "MNIST: test accuracy against connectivity at the end (soft-DEEP R: the highest ever met)",
            axis("connectivity", "log", percent=True),
            axis("test accuracy", percent=True),
            [series(method, found, styles.get(method, "points")) for method, found in points.items()],
        )
        examples = [job for groups in runs.values() if (job := _example(groups, done)) is not None]
        curves = lines(
            "mnist-connectivity",
            "MNIST: connectivity over iterations, of the network of each method whose end is nearest to 2.5 %",
            axis("iteration"),
            axis("connectivity", "log", percent=True),
            [series(job.config.method, connectivity_curve(job, done)) for job in examples],
        )
        settings = dict(mnist.SETTINGS)
        settings["pruning"] = "weight decay × quality factor as in fig5"
        settings["ℓ1-shrinkage"] = f"α = 10^(−n/2), n = {', '.join(map(str, mnist.exponents(scale)))}"
        return Drawn(
            settings={"MNIST": settings},
            charts=[scatter, curves],
            tables=[ACCURACY.table(points, None, "MNIST: all points")],
            findings=_findings(scale, seeds, points),
            runs=list(examples),
        )


def _example(groups: Sequence[Sequence[TrainJob]], done: Outcomes) -> TrainJob | None:
    """A network with a decent compromise, by its connectivity alone: that at the end nearest to 2.5 %, seed 0."""
    ended = [job for jobs in groups for job in jobs[:1] if job.folder in done.summaries]
    return min(ended, key=lambda job: abs(_final(done.summaries[job.folder]) - 0.025), default=None)


def _final(summary: dict[str, Any]) -> float:
    return sum(layer["final"] for layer in summary["layers"]) / summary["possible"]  # type: ignore[no-any-return]


def connectivity_curve(job: Job, done: Outcomes) -> list[dict[str, Any]]:
    """The most connections in each window, the start included."""
    summary = done.summaries[job.folder]
    possible = summary["possible"]
    start = sum(layer["initial"] for layer in summary["layers"]) / possible
    windows = done.metrics(job, "window")[::4]
    found = [{"x": 0, "y": start}, *({"x": w["step_to"], "y": w["active_max"] / possible} for w in windows)]
    return [point for point in found if point["y"] > 0]


def _findings(scale: Scale, seeds: int, points: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    found = []
    low = {m: [p for p in points[m] if p["x"] <= _VERY_LOW] for m in points}
    best = {m: max(low[m], key=lambda p: p["y"]) for m in points if low[m]}
    ours = "; ".join(f"{METHOD_NAMES[m]} {100 * p['y']:.1f} % at {100 * p['x']:.2g} %" for m, p in best.items())
    fails = [best[m]["y"] < 0.5 for m in ("pruning", "l1-shrinkage") if m in best]
    claim = "MNIST: pruning and ℓ1-shrinkage fail completely at very low connectivity"
    note = f"read as: the best of their networks with at most {100 * _VERY_LOW:g} % of the connections is below 50 %"
    found.append(finding(scale, claim, "fail completely", ours or "no such network", 1, all(fails) if fails else None, note))
    works = [best[m]["y"] > 0.8 for m in ("deep-r", "soft-deep-r") if m in best]
    claim = "MNIST: DEEP R and soft-DEEP R still give reasonable networks there"
    note = f"read as: the best with at most {100 * _VERY_LOW:g} % of the connections is above 80 %, for both"
    found.append(finding(scale, claim, "reasonable", ours or "no such network", seeds, all(works) if works else None, note))
    pairs = []
    for p in points["pruning"]:
        near = [q for q in points["deep-r"] if abs(q["x"] / p["x"] - 1) < 0.5]
        if p["x"] >= _LARGER and near:
            q = min(near, key=lambda q: abs(q["x"] / p["x"] - 1))
            pairs.append((p, q))
    if pairs:
        p, q = max(pairs, key=lambda pair: pair[0]["y"] - pair[1]["y"])
        ours = f"pruning {100 * p['y']:.2f} % at {100 * p['x']:.2g} %, DEEP R {100 * q['y']:.2f} % at {100 * q['x']:.2g} %"
        claim = "MNIST: pruning is slightly better at larger connectivities"
        note = f"the pair above {100 * _LARGER:g} % where pruning leads most"
        found.append(finding(scale, claim, "slightly better", ours, 1, p["y"] > q["y"], note))
    return found
