"""Figure 6: how many connections DEEP R gives birth to in each layer, over the whole training.

The claim that newborns are proportional to the potential connections of a layer depends on where newborns may go, so all
three readings are run: uniform over all dormant connections (Algorithm 1 as printed), by the layers' first shares of the
budget (the authors' code), and in the layer where a connection went dormant (a budget for each layer).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wirebound_lab.paper import mnist_jobs as mnist
from wirebound_lab.paper.charts import axis, lines, series
from wirebound_lab.paper.curves import boxcar, curve_over_seeds, grouped, mean_over
from wirebound_lab.paper.figure import Drawn, Figure, Outcomes, Panel, Reading, Runs, Scale
from wirebound_lab.paper.job import Job
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
    """Newborns per iteration of one run, [layer][window], and the iterations at which windows end."""

    steps: list[int]
    rates: list[list[float]]
    possible: list[int]

    @classmethod
    def of(cls, job: Job, done: Outcomes) -> Births:
        windows, layers = done.metrics(job, "window"), done.summaries[job.folder]["layers"]
        rates = [[w["newborns"][n] / (w["step_to"] - w["step_from"] + 1) for w in windows] for n in range(len(layers))]
        return cls([w["step_to"] for w in windows], rates, [layer["possible"] for layer in layers])


def runs(scale: Scale, seeds: int) -> Runs:
    return {scope: {_LEVEL: [mnist.deep_r(scale, _LEVEL, s, _EPOCHS, scope) for s in range(seeds)]} for scope in SCOPES}


def read(r: Reading) -> Drawn:
    """Newborns per iteration and layer, absolute and relative."""
    jobs = {scope: points[_LEVEL] for scope, points in r.runs.items()}
    births = {scope: [Births.of(job, r.done) for job in ran] for scope, of in jobs.items() if (ran := r.done.ended(of))}
    own = {"connectivity": _LEVEL, "epochs": _EPOCHS, "newborns": "all three readings of the rule"}
    drawn = Drawn(r.scale, {**mnist.SETTINGS, **own}, runs=[of[0] for of in jobs.values()])
    for scope, found in births.items():
        drawn.charts += _charts(scope, found)
    title = "Test accuracy over iterations, newborns by first shares"
    drawn.charts.append(ACCURACY.over_iterations("accuracy", title, {"deep-r": jobs["share"]}, r.done))
    rows = [[SCOPES[scope], mean.percent()] for scope, of in jobs.items() if (mean := r.mean(of))]
    drawn.tables = [_table(births), {"title": "Test accuracy", "columns": ["newborns", "test accuracy"], "rows": rows}]
    if births:
        _findings(drawn, births)
    return drawn


def _charts(scope: str, births: list[Births]) -> list[dict[str, Any]]:
    absolute, relative = [], []
    for number, possible in enumerate(births[0].possible):
        name = f"layer {number + 1} ({possible:,} potential)"
        curves = [_curve(b, b.rates[number]) for b in births]
        smooth = [_curve(b, [y / possible for y in boxcar(b.rates[number], _WIDTH)]) for b in births]
        absolute.append(series(f"layer-{number + 1}", curve_over_seeds(curves), name=name))
        relative.append(series(f"layer-{number + 1}", curve_over_seeds(smooth), name=name))
    x, y = axis("iteration"), axis("newborns per iteration", "log")
    per_place = axis("newborns per iteration and potential connection", "log")
    title = f"Newborns relative to potential connections, {SCOPES[scope]}"
    return [
        lines(f"newborns-{scope}", f"Newborns per iteration, {SCOPES[scope]}", x, y, absolute),
        lines(f"relative-{scope}", title, x, per_place, relative),
    ]


def _curve(births: Births, rates: list[float]) -> list[tuple[float, float]]:
    pairs = zip(grouped(births.steps, _POINTS), grouped(rates, _POINTS), strict=True)
    return [(step, rate) for step, rate in pairs if rate > 0]  # the axis is logarithmic


def _rates(births: list[Births], start: float = 0.75, stop: float = 1.0) -> list[float]:
    """Newborns per iteration of each layer in a part of the training (its last quarter), mean over seeds."""

    def part(rates: list[float]) -> float:
        found = rates[int(start * len(rates)) : max(int(start * len(rates)) + 1, int(stop * len(rates)))]
        return sum(found) / len(found)

    return [mean_over(part(b.rates[number]) for b in births).value for number in range(len(births[0].possible))]


def _table(births: dict[str, list[Births]]) -> dict[str, Any]:
    rows = []
    for scope, found in births.items():
        late = zip(_rates(found), found[0].possible, strict=True)
        rows.append([SCOPES[scope], *(f"{rate:.3g} ({rate / possible:.2e})" for rate, possible in late)])
    layers = len(rows[0]) - 1 if rows else 0
    return {
        "title": "Newborns per iteration in the last quarter of the training",
        "columns": ["newborns", *(f"layer {n + 1}" for n in range(layers))],
        "rows": rows,
        "note": "in brackets: of each potential connection of the layer",
    }


def _findings(drawn: Drawn, births: dict[str, list[Births]]) -> None:
    seeds = min(map(len, births.values()))
    starts, changes = [], []
    for scope, found in births.items():
        early, third, late = _rates(found, 0.0, 0.01), _rates(found, 0.5, 0.75), _rates(found)
        starts += [(f"{scope}, layer {n + 1}: ", *pair) for n, pair in enumerate(zip(early, late, strict=True))]
        changes += [abs(b / a - 1) if a > 0 else math.inf for a, b in zip(third, late, strict=True)]
    claim = "few connections are born at first, in every layer, until weights have been driven to 0"
    note = "newborns per iteration in the first hundredth of the training and in its last quarter; read as: less than half"
    ours = "; ".join(f"{where}{a:.2f} → {b:.2f}" for where, a, b in starts)
    drawn.finding(claim, "small at first", ours, seeds, all(a < b / 2 for _, a, b in starts), note)
    claim = "the number of newborns settles at a stable value and stays there after the accuracy has converged"
    note = "read as: less than 25 % change from the third to the last quarter, in every layer and reading"
    ours = f"changes by at most {100 * max(changes):.0f} %"
    drawn.finding(claim, "stable", ours, seeds, max(changes) < 0.25, note)
    for scope in [scope for scope in ("uniform", "share") if scope in births]:
        found = births[scope]
        relative = [rate / possible for rate, possible in zip(_rates(found), found[0].possible, strict=True)]
        ratio = max(relative) / min(relative) if min(relative) > 0 else math.inf
        claim = f"the stable number is proportional to the potential connections of the layer (newborns {SCOPES[scope]})"
        note = "read as: newborns per potential connection differ by less than a factor 1.5 between layers"
        drawn.finding(claim, "proportional", f"differ by a factor {ratio:.2f}", len(found), ratio < 1.5, note)


FIG6 = Figure(
    name="fig6",
    title="Rewiring of DEEP R during training on MNIST",
    paper="Figure 6 (appendix D)",
    claim="Newborns per iteration start small, settle at a stable value proportional to the number of potential connections "
    "of the layer, and stay there after the accuracy has converged.",
    panels=(Panel(runs, read),),
    notes={
        Scale.QUICK: "the same networks on the bundled digits, one seed",
        Scale.FITTED: "the paper's own settings at 1 %, 20 epochs, all three readings of where newborns go",
        Scale.FULL: "the paper's own settings at 1 %, 20 epochs, all three readings of where newborns go",
    },
    costs={Scale.QUICK: "2 s", Scale.FITTED: "1 min", Scale.FULL: "1 min"},
)
