"""Figure 6: how many connections DEEP R gives birth to in each layer, over the whole training.

The claim that newborns are proportional to the potential connections of a layer depends on where newborns may go, so all
three readings are run: uniform over all dormant connections (Algorithm 1 as printed), by the layers' first shares of the
budget (the authors' code), and in the layer where a connection went dormant (a budget for each layer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wirebound_lab.paper import mnist_jobs as mnist
from wirebound_lab.paper.charts import axis, finding, lines, series
from wirebound_lab.paper.curves import boxcar, curve_over_seeds, grouped, mean_of, mean_of_key
from wirebound_lab.paper.figure import Drawn, Figure, Outcomes, Part, Scale
from wirebound_lab.paper.job import Job, TrainJob
from wirebound_lab.paper.measure import ACCURACY

_LEVEL, _EPOCHS = 0.01, 20
_WIDTH, _POINTS = 9, 100  # windows of the boxcar; points of a curve
SCOPES = {
    "uniform": "uniform over all dormant connections, as Algorithm 1 is printed",
    "share": "by the layers' first shares, as in the authors' code",
    "layer": "within the layer where one went dormant",
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
        drawn.charts.append(ACCURACY.over_iterations("accuracy", "Test accuracy over iterations, newborns by first shares", shown, done))
        accuracy = [[SCOPES[s], m.percent()] for s, jobs in runs.items() if (m := mean_of_key(done.of(jobs), "test_accuracy"))]
        drawn.tables.append({"title": "Test accuracy", "columns": ["newborns", "test accuracy"], "rows": accuracy})
        return drawn


def _charts(scope: str, births: list[Births]) -> list[dict[str, Any]]:
    absolute, relative = [], []
    for number, possible in enumerate(births[0].possible):
        name = f"layer {number + 1} ({possible:,} potential)"
        curves = [_curve(b, b.layer(number)) for b in births]
        smooth = [_curve(b, [y / possible for y in boxcar(b.layer(number), _WIDTH)]) for b in births]
        absolute.append(series(f"layer-{number + 1}", curve_over_seeds(curves), name=name))
        relative.append(series(f"layer-{number + 1}", curve_over_seeds(smooth), name=name))
    x, words = axis("iteration"), SCOPES[scope]
    per_step, per_place = axis("newborns per iteration", "log"), axis("newborns per iteration and potential connection", "log")
    return [
        lines(f"newborns-{scope}", f"Newborns per iteration, {words}", x, per_step, absolute),
        lines(f"relative-{scope}", f"Newborns relative to potential connections, {words}", x, per_place, relative),
    ]


def _curve(births: Births, rates: list[float]) -> list[tuple[float, float]]:
    """Against iterations; places without a newborn are left away, because the axis is logarithmic."""
    pairs = zip(grouped(births.steps, _POINTS), grouped(rates, _POINTS), strict=True)
    return [(step, rate) for step, rate in pairs if rate > 0]


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
    ran = {scope: runs for scope, runs in births.items() if runs}
    if not ran:
        return []
    seeds = min(map(len, ran.values()))
    found = [_small_at_first(scale, ran, seeds), _stable(scale, ran, seeds)]
    for scope in ("uniform", "share"):
        if scope in ran:
            ratio = _ratio(ran[scope])
            claim = f"the stable number is proportional to the potential connections of the layer (newborns {SCOPES[scope]})"
            note = "read as: newborns per potential connection differ by less than a factor 1.5 between layers"
            ours = f"differ by a factor {ratio:.2f}"
            found.append(finding(scale, claim, "proportional", ours, len(ran[scope]), ratio < 1.5, note))
    return found


def _small_at_first(scale: Scale, ran: dict[str, list[Births]], seeds: int) -> dict[str, Any]:
    parts, holds = [], True
    for scope, runs in ran.items():
        for number in range(len(runs[0].possible)):
            early, late = _mean(b.part(number, 0.0, 0.01) for b in runs), _late(runs, number)
            holds &= early < late / 2
            parts.append(f"{scope}, layer {number + 1}: {early:.2f} → {late:.2f}")
    claim = "few connections are born at first, in every layer, until weights have been driven to 0"
    note = "newborns per iteration in the first hundredth of the training and in its last quarter; read as: less than half"
    return finding(scale, claim, "small at first", "; ".join(parts), seeds, holds, note)


def _stable(scale: Scale, ran: dict[str, list[Births]], seeds: int) -> dict[str, Any]:
    changes = []
    for runs in ran.values():
        for number in range(len(runs[0].possible)):
            third = _mean(b.part(number, 0.5, 0.75) for b in runs)
            changes.append(abs(_late(runs, number) / third - 1) if third > 0 else float("inf"))
    claim = "the number of newborns settles at a stable value and stays there after the accuracy has converged"
    note = "read as: less than 25 % change from the third to the last quarter, in every layer and reading"
    ours = f"changes by at most {100 * max(changes):.0f} %"
    return finding(scale, claim, "stable", ours, seeds, max(changes) < 0.25, note)


def _ratio(runs: list[Births]) -> float:
    """How much newborns per potential connection differ between layers, as a factor."""
    relative = [_late(runs, number) / possible for number, possible in enumerate(runs[0].possible)]
    return max(relative) / min(relative) if min(relative) > 0 else float("inf")


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
    costs={Scale.QUICK: "2 s", Scale.FITTED: "1 min", Scale.FULL: "1 min"},
)
