"""Figure 6: how many connections DEEP R gives birth to in each layer, over the whole training.

The claim that newborns are proportional to the potential connections of a layer depends on where newborns may go, so all
three readings are run: uniform over all dormant connections (Algorithm 1 as printed), by the layers' first shares of the
budget (the authors' code), and in the layer where a connection went dormant (a budget for each layer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wirebound.experiments.figures import mnist_jobs as mnist
from wirebound.experiments.figures.charts import axis, finding, lines, series
from wirebound.experiments.figures.curves import boxcar, curve_over_seeds, mean_of, mean_of_key
from wirebound.experiments.figures.fig1a import over_iterations
from wirebound.experiments.figures.figure import Drawn, Figure, Outcomes, Part, Scale
from wirebound.experiments.figures.job import Job, TrainJob

_LEVEL, _EPOCHS, _WIDTH = 0.01, 20, 9  # windows of a boxcar
SCOPES = {
    "uniform": "uniform over all dormant connections",
    "share": "by the layers' first shares",
    "layer": "within the layer",
}


@dataclass(frozen=True)
class Births:
    """Newborns per iteration of one run, [window][layer], and the iterations at which windows end."""

    steps: list[int]
    rates: list[list[float]]
    possible: list[int]

    @classmethod
    def of(cls, job: Job, done: Outcomes) -> Births:
        windows = done.metrics(job, "window")
        rates = [[n / (w["step_to"] - w["step_from"] + 1) for n in w["newborns"]] for w in windows]
        layers = done.summaries[job.folder]["layers"]
        return cls([w["step_to"] for w in windows], rates, [layer["possible"] for layer in layers])

    def layer(self, number: int) -> list[float]:
        return [rate[number] for rate in self.rates]

    def part(self, number: int, start: float, stop: float) -> float:
        """Mean newborns per iteration of a layer in a part of the training."""
        rates = self.layer(number)
        found = rates[int(start * len(rates)) : max(int(start * len(rates)) + 1, int(stop * len(rates)))]
        return sum(found) / len(found)


class Rewiring(Part):
    """Newborns per iteration and layer, absolute and relative."""

    def runs(self, scale: Scale, seeds: int) -> dict[str, list[TrainJob]]:
        return {scope: [mnist.deep_r(scale, _LEVEL, s, _EPOCHS, scope) for s in range(seeds)] for scope in SCOPES}

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return [job for jobs in self.runs(scale, seeds).values() for job in jobs]

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        runs = self.runs(scale, seeds)
        births = {scope: [Births.of(job, done) for job in done.ended(jobs)] for scope, jobs in runs.items()}
        drawn = Drawn(
            settings={**mnist.SETTINGS, "connectivity": _LEVEL, "epochs": _EPOCHS, "newborns": "all three readings of the rule"},
            tables=[_table(births)],
            findings=_findings(scale, births),
            runs=[jobs[0] for jobs in runs.values()],
        )
        for scope, found in births.items():
            if found:
                drawn.charts += _charts(scope, found)
        shown = {"deep-r": runs["share"]}
        drawn.charts.append(over_iterations("accuracy", "Test accuracy over iterations, newborns by first shares", shown, done))
        accuracy = [[SCOPES[s], m.percent()] for s, jobs in runs.items() if (m := mean_of_key(done.of(jobs), "test_accuracy"))]
        drawn.tables.append({"title": "Test accuracy", "columns": ["newborns", "test accuracy"], "rows": accuracy})
        return drawn


def _charts(scope: str, births: list[Births]) -> list[dict[str, Any]]:
    absolute, relative = [], []
    for number, possible in enumerate(births[0].possible):
        name = f"layer {number + 1} ({possible:,} potential)"
        curves = [list(zip(b.steps, b.layer(number), strict=True)) for b in births]
        smooth = [[(x, y / possible) for x, y in zip(b.steps, boxcar(b.layer(number), _WIDTH), strict=True)] for b in births]
        absolute.append(series(f"layer-{number + 1}", curve_over_seeds(curves), name=name))
        relative.append(series(f"layer-{number + 1}", curve_over_seeds(smooth), name=name))
    x, words = axis("iteration"), SCOPES[scope]
    return [
        lines(f"newborns-{scope}", f"Newborns per iteration, {words}", x, axis("newborns per iteration"), absolute),
        lines(f"relative-{scope}", f"Newborns per iteration and potential connection, {words}", x, axis("share a step", "log"), relative),
    ]


def _late(births: list[Births], number: int) -> float:
    """Newborns per iteration in the last quarter of the training, over seeds."""
    mean = mean_of(b.part(number, 0.75, 1.0) for b in births)
    assert mean is not None
    return mean.value


def _table(births: dict[str, list[Births]]) -> dict[str, Any]:
    rows = []
    for scope, found in births.items():
        if not found:
            continue
        late = [_late(found, n) for n in range(len(found[0].possible))]
        parts = [f"{rate:.3g} ({rate / possible:.2e})" for rate, possible in zip(late, found[0].possible, strict=True)]
        rows.append([SCOPES[scope], *parts])
    layers = len(rows[0]) - 1 if rows else 0
    return {
        "title": "Newborns per iteration in the last quarter of the training",
        "columns": ["newborns", *(f"layer {n + 1}" for n in range(layers))],
        "rows": rows,
        "note": "in brackets: of each potential connection of the layer",
    }


def _findings(scale: Scale, births: dict[str, list[Births]]) -> list[dict[str, Any]]:
    found = []
    share = births["share"]
    if share:
        layers = range(len(share[0].possible))
        early = [_mean(b.part(n, 0.0, 0.01) for b in share) for n in layers]
        late = [_late(share, n) for n in layers]
        ours = ", ".join(f"layer {n + 1}: {a:.2f} → {b:.2f}" for n, (a, b) in enumerate(zip(early, late, strict=True)))
        claim = "few connections are born at first, in every layer, until weights have been driven to 0"
        note = "first hundredth of the training, and its last quarter, newborns per iteration"
        holds = all(a < b for a, b in zip(early, late, strict=True))
        found.append(finding(scale, claim, "no number", ours, len(share), holds, note))
        third = [_mean(b.part(n, 0.5, 0.75) for b in share) for n in layers]
        change = max(abs(b / a - 1) for a, b in zip(third, late, strict=True) if a > 0)
        claim = "the number of newborns settles at a stable value and stays there after the accuracy has converged"
        note = "read as: less than 25 % change from the third to the last quarter, in every layer"
        found.append(finding(scale, claim, "stable", f"changes by at most {100 * change:.0f} %", len(share), change < 0.25, note))
    for scope, runs in births.items():
        if not runs:
            continue
        relative = [_late(runs, n) / possible for n, possible in enumerate(runs[0].possible)]
        ratio = max(relative) / min(relative) if min(relative) > 0 else float("inf")
        claim = f"the stable number is proportional to the potential connections of the layer (newborns {SCOPES[scope]})"
        note = "read as: newborns per potential connection differ by less than a factor 1.5 between layers"
        found.append(finding(scale, claim, "proportional", f"differ by a factor {ratio:.2f}", len(runs), ratio < 1.5, note))
    return found


def _mean(values: Any) -> float:
    mean = mean_of(values)
    assert mean is not None
    return mean.value


FIG6 = Figure(
    name="fig6",
    title="Rewiring of DEEP R during training on MNIST",
    paper="Figure 6 (appendix D)",
    claim="Newborns per iteration start small, settle at a stable value proportional to the number of potential connections "
    "of the layer, and stay there after the accuracy has converged.",
    parts=(Rewiring(),),
    notes={
        Scale.QUICK: "the same networks on the bundled digits, one seed",
        Scale.FITTED: "the paper's own settings at 1 %, 20 epochs, all three readings of where newborns go",
        Scale.FULL: "the paper's own settings at 1 %, 20 epochs, all three readings of where newborns go",
    },
    costs={Scale.QUICK: "5 s", Scale.FITTED: "1 min", Scale.FULL: "1 min"},
)
