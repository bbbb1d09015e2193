"""The CIFAR-10 and speech panels of figure 3: DEEP R and soft-DEEP R beside pruning and ℓ1-shrinkage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from wirebound_lab.paper import cifar_jobs as cifar
from wirebound_lab.paper import speech_jobs as speech
from wirebound_lab.paper.charts import METHOD_NAMES, axis, finding, lines, series
from wirebound_lab.paper.fig3_mnist import connectivity_curve
from wirebound_lab.paper.figure import Drawn, Outcomes, Part, Scale
from wirebound_lab.paper.job import Job
from wirebound_lab.paper.measure import ACCURACY, ERROR
from wirebound_lab.paper.task_job import TaskJob, affordable

Runs = dict[str, list[list[TaskJob]]]  # by method, the seeds of each point
_RIVALS = ("pruning", "l1-shrinkage")


class _Comparison(Part):
    """A panel; the last run of each method's list is the one whose curves are shown."""

    task: str

    @abstractmethod
    def runs(self, scale: Scale, seeds: int) -> Runs: ...

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return [job for groups in self.runs(scale, seeds).values() for jobs in groups for job in jobs]

    def connectivity(self, runs: Runs, done: Outcomes) -> dict[str, Any]:
        shown = {method: groups[0][:1] for method, groups in runs.items()}
        return lines(
            f"{self.task.lower()}-connectivity",
            f"{self.task}: connectivity over iterations",
            axis("iteration"),
            axis("connectivity", "log", percent=True),
            [series(m, connectivity_curve(job, done)) for m, jobs in shown.items() for job in done.ended(jobs)],
        )


class CifarComparison(_Comparison):
    """CIFAR-10: accuracy against connectivity at the end."""

    task = "CIFAR-10"

    def runs(self, scale: Scale, seeds: int) -> Runs:
        each, scans = range(affordable(scale, seeds)), range(cifar.scan_seeds(scale, seeds))
        return {
            "deep-r": [[cifar.deep_r(scale, level, s) for s in each] for level in cifar.LEVELS],
            "soft-deep-r": [[cifar.soft(scale, level, s) for s in scans] for level in cifar.SOFT_STARTS],
            "pruning": [[cifar.pruning(scale, level, s) for s in scans] for level in cifar.PRUNED],
            "l1-shrinkage": [[cifar.l1_shrinkage(scale, rate, s) for s in scans] for rate in cifar.L1_RATES],
        }

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        runs = self.runs(scale, seeds)
        points = {m: ACCURACY.points([done.of(jobs) for jobs in groups]) for m, groups in runs.items()}
        scatter = lines(
            "cifar-accuracy",
            "CIFAR-10: test accuracy against connectivity at the end (soft-DEEP R: the highest ever met)",
            axis("connectivity", "log", percent=True),
            axis("test accuracy", percent=True),
            [series(m, found, "points" if m in _RIVALS else "line") for m, found in points.items()],
        )
        settings = {
            **cifar.SETTINGS,
            "pruning": f"to {', '.join(f'{100 * p:g} %' for p in cifar.PRUNED)}, in two cuts, by one threshold for all matrices",
            "ℓ1-shrinkage": f"α {', '.join(f'{rate:g}' for rate in cifar.L1_RATES)}",
        }
        return Drawn(
            settings={"CIFAR-10": settings},
            charts=[scatter, self.connectivity(runs, done)],
            tables=[ACCURACY.table(points, None, "CIFAR-10: all points")],
            findings=_at_or_below(scale, "CIFAR-10", points, 1, cifar.scan_seeds(scale, seeds)),
            runs=[groups[0][0] for groups in runs.values()],
        )


class SpeechComparison(_Comparison):
    """Speech: error against connectivity at the end, and error over iterations, where jumps are looked for."""

    task = "Speech"

    def runs(self, scale: Scale, seeds: int) -> Runs:
        each = range(affordable(scale, seeds))
        return {
            "deep-r": [[speech.deep_r(scale, level, s) for s in each] for level in reversed(speech.LEVELS)],
            "soft-deep-r": [[speech.soft(scale, level, s) for s in each] for level in speech.SOFT_STARTS],
            "pruning": [[speech.pruning(scale, level, s) for s in each] for level in speech.PRUNED],
            "l1-shrinkage": [[speech.l1_shrinkage(scale, rate, s) for s in each] for rate in speech.L1_RATES],
        }

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        runs = self.runs(scale, seeds)
        points = {m: ERROR.points([done.of(jobs) for jobs in groups]) for m, groups in runs.items()}
        scatter = lines(
            "speech-error",
            "Speech: frame error against connectivity at the end (soft-DEEP R: the highest ever met)",
            axis("connectivity", "log", percent=True),
            axis("test error", percent=True),
            [series(m, found, "points" if m in _RIVALS else "line") for m, found in points.items()],
        )
        shown = {method: groups[0] for method, groups in runs.items()}
        settings = {
            **speech.SETTINGS,
            "pruning": f"to {', '.join(f'{100 * p:g} %' for p in speech.PRUNED)}, in two cuts, ℓ2 {speech.DECAY:g}",
            "ℓ1-shrinkage": f"α {', '.join(f'{rate:g}' for rate in speech.L1_RATES)}",
        }
        over = ERROR.over_iterations("speech-iterations", "Speech: validation error over iterations", shown, done)
        return Drawn(
            settings={"Speech": settings},
            charts=[scatter, self.connectivity(runs, done), over],
            tables=[ERROR.table(points, None, "Speech: all points")],
            findings=[*_at_or_below(scale, "Speech", points, -1, affordable(scale, seeds)), *_jumps(scale, shown, done)],
            runs=[groups[0][0] for groups in runs.values()],
        )


def _at_or_below(
    scale: Scale, task: str, points: Mapping[str, Sequence[dict[str, Any]]], better: int, seeds: int
) -> list[dict[str, Any]]:
    """Each network of pruning and ℓ1-shrinkage beside the DEEP R network with no more connections (or the sparsest)."""
    own = sorted(points["deep-r"], key=lambda p: p["x"])
    pairs = []
    for method in _RIVALS:
        for p in points[method]:
            within = [q for q in own if q["x"] <= 1.001 * p["x"]]
            if within:
                pairs.append((method, p, within[-1]))
    claim = f"{task}: DEEP R does at least as well as pruning and ℓ1-shrinkage at the same connectivity"
    ours = "; ".join(
        f"{METHOD_NAMES[m]} {100 * p['y']:.2f} % at {100 * p['x']:.2g} %, DEEP R {100 * q['y']:.2f} % at {100 * q['x']:.2g} %"
        for m, p, q in pairs
    )
    holds = all(better * (q["y"] - p["y"]) >= 0 for _, p, q in pairs) if pairs else None
    note = "beside each, the DEEP R networks with the same number of connections or fewer"
    return [finding(scale, claim, "slightly better", ours or "no networks to compare", seeds, holds, note)]


def _jumps(scale: Scale, shown: Mapping[str, Sequence[TaskJob]], done: Outcomes) -> list[dict[str, Any]]:
    """The largest rise of the validation error from one epoch to the next, of each method over its seeds."""
    worst = {}
    for method in ("deep-r", *_RIVALS):
        rises = []
        for job in done.ended(shown[method]):
            errors = [record["validation_error"] for record in done.metrics(job, "epoch")]
            rises += [after - before for before, after in pairwise(errors)]
        if rises:
            worst[method] = max(rises)
    if len(worst) < 3:
        return []
    claim = "Speech: pruning and ℓ1-shrinkage make the error jump, DEEP R has only small glitches"
    ours = "largest rise between two epochs: " + ", ".join(f"{METHOD_NAMES[m]} {100 * rise:+.2f} %" for m, rise in worst.items())
    holds = worst["deep-r"] < min(worst[m] for m in _RIVALS)
    note = "read as: the largest rise of DEEP R is below that of both others"
    return [finding(scale, claim, "large sudden increases", ours, affordable(scale, 2), holds, note)]
