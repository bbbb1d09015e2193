"""Figure 6: how many connections DEEP R gives birth to in each layer, over the whole training.

The claim that newborns are proportional to the potential connections of a layer depends on where newborns may go, so all
three readings are run: uniform over all dormant connections (Algorithm 1 as printed), by the layers' first shares of the
budget (the authors' code), and in the layer where a connection went dormant (a budget for each layer).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from wirebound_lab.paper.figure import Drawn, Figure, Panel, Reading, Runs, Scale
from wirebound_lab.paper.job import Job, Outcomes
from wirebound_lab.paper.measure import ACCURACY, axis, boxcar, curve_over_seeds, grouped, lines, mean_over, series
from wirebound_lab.paper.task_runs import MNIST, mnist_job

_LEVEL, _EPOCHS = 0.01, 20
_WIDTH, _POINTS = 9, 100  # windows of the boxcar; points of a curve
_PAGE = "docs/finding-newborns.md"
SCOPES = {
    "uniform": "uniform over all dormant connections, as Algorithm 1 is printed",
    "share": "by the layers' first shares, as in the authors' code",
    "layer": "within the layer where one went dormant",
}


class Births(NamedTuple):
    """Newborns per iteration of one run, [layer][window], and the iterations at which windows end."""

    steps: list[int]
    rates: list[list[float]]
    possible: list[int]

    @classmethod
    def of(cls, job: Job, done: Outcomes) -> Births:
        windows, layers = done.metrics(job, "window"), done.summaries[job.folder]["layers"]
        rates = [[w["newborns"][n] / (w["step_to"] - w["step_from"] + 1) for w in windows] for n in range(len(layers))]
        return cls([w["step_to"] for w in windows], rates, [layer["possible"] for layer in layers])

    def relative(self, rates: list[float]) -> list[float]:
        """Of each potential connection."""
        return [rate / possible for rate, possible in zip(rates, self.possible, strict=True)]


def runs(scale: Scale, seeds: int) -> Runs:
    words, own = f"deep-r-{_LEVEL:g}-e{_EPOCHS}", {"method": "deep-r", "connectivity": _LEVEL, "epochs": _EPOCHS}
    found: dict[str, dict[float, list[Job]]] = {}
    for scope in SCOPES:
        name = words + ("" if scope == "share" else f"-{scope}")
        rule = {"scope": "layer"} if scope == "layer" else {"newborns": scope}
        found[scope] = {_LEVEL: [mnist_job(scale, name, s, **own, **rule) for s in range(seeds)]}
    return found


def read(r: Reading) -> Drawn:
    """Newborns per iteration and layer, absolute and relative."""
    jobs = {scope: points[_LEVEL] for scope, points in r.runs.items()}
    births = {scope: [Births.of(job, r.done) for job in ran] for scope, of in jobs.items() if (ran := r.done.ended(of))}
    own = {"connectivity": _LEVEL, "epochs": _EPOCHS, "newborns": "all three readings of the rule"}
    drawn = Drawn(r.scale, {**MNIST.settings, **own}, runs=[of[0] for of in jobs.values()])
    for scope, found in births.items():
        _add_charts(drawn, scope, found)
    title = "Test accuracy over iterations, newborns by first shares"
    drawn.charts.append(ACCURACY.over_iterations("accuracy", title, {"deep-r": jobs["share"]}, r.done))
    rows = []
    for scope, found in births.items():
        late = zip(rates := _rates(found), found[0].relative(rates), strict=True)
        rows.append([SCOPES[scope], *(f"{rate:.3g} ({relative:.2e})" for rate, relative in late)])
    columns = ["newborns", *(f"layer {n + 1}" for n in range(len(rows[0]) - 1 if rows else 0))]
    title = "Newborns per iteration in the last quarter of the training"
    note = "in brackets: of each potential connection of the layer"
    means = [[SCOPES[scope], mean.percent()] for scope, of in jobs.items() if (mean := r.mean(of))]
    drawn.tables = [
        {"title": title, "columns": columns, "rows": rows, "note": note},
        {"title": "Test accuracy", "columns": ["newborns", "test accuracy"], "rows": means},
    ]
    if births:
        _findings(drawn, births)
    return drawn


def _add_charts(drawn: Drawn, scope: str, births: list[Births]) -> None:
    absolute, relative = [], []
    for n, possible in enumerate(births[0].possible):
        name = f"layer {n + 1} ({possible:,} potential)"
        curves = [_curve(b, b.rates[n]) for b in births]
        smooth = [_curve(b, [y / possible for y in boxcar(b.rates[n], _WIDTH)]) for b in births]
        absolute.append(series(f"layer-{n + 1}", curve_over_seeds(curves), name=name))
        relative.append(series(f"layer-{n + 1}", curve_over_seeds(smooth), name=name))
    x, y = axis("iteration"), axis("newborns per iteration", "log")
    per_place = axis("newborns per iteration and potential connection", "log")
    title = f"Newborns relative to potential connections, {SCOPES[scope]}"
    drawn.charts.append(lines(f"newborns-{scope}", f"Newborns per iteration, {SCOPES[scope]}", x, y, absolute))
    drawn.charts.append(lines(f"relative-{scope}", title, x, per_place, relative))


def _curve(births: Births, rates: list[float]) -> list[tuple[float, float]]:
    pairs = zip(grouped(births.steps, _POINTS), grouped(rates, _POINTS), strict=True)
    return [(step, rate) for step, rate in pairs if rate > 0]  # the axis is logarithmic


def _rates(births: list[Births], start: float = 0.75, stop: float = 1.0) -> list[float]:
    """Newborns per iteration of each layer in a part of the training (its last quarter), mean over seeds."""

    def part(rates: list[float]) -> float:
        found = rates[int(start * len(rates)) : max(int(start * len(rates)) + 1, int(stop * len(rates)))]
        return sum(found) / len(found)

    return [mean_over(part(b.rates[number]) for b in births).value for number in range(len(births[0].possible))]


def _findings(drawn: Drawn, births: dict[str, list[Births]]) -> None:
    seeds = min(map(len, births.values()))
    starts, changes = [], []
    for scope, found in births.items():
        early, third, late = _rates(found, 0.0, 0.01), _rates(found, 0.5, 0.75), _rates(found)
        starts += [(f"{scope}, layer {n + 1}: ", *pair) for n, pair in enumerate(zip(early, late, strict=True))]
        changes += [abs(b / a - 1) if a > 0 else math.inf for a, b in zip(third, late, strict=True)]
    claim = "few connections are born at first, in every layer, until weights have been driven to 0"
    test, note = "less than half", "newborns per iteration in the first hundredth of the training and in its last quarter"
    ours = "; ".join(f"{where}{a:.2f} → {b:.2f}" for where, a, b in starts)
    drawn.finding(claim, "small at first", ours, seeds, all(a < b / 2 for _, a, b in starts), test, note)
    claim = "the number of newborns settles at a stable value and stays there after the accuracy has converged"
    test = "less than 25 % change from the third to the last quarter, in every layer and reading"
    ours = f"changes by at most {100 * max(changes):.0f} %"
    drawn.finding(claim, "stable", ours, seeds, max(changes) < 0.25, test)
    for scope in [scope for scope in ("uniform", "share") if scope in births]:
        found = births[scope]
        relative = found[0].relative(_rates(found))
        ratio = max(relative) / min(relative) if min(relative) > 0 else math.inf
        claim = f"the stable number is proportional to the potential connections of the layer (newborns {SCOPES[scope]})"
        test = "newborns per potential connection differ by less than a factor 1.5 between layers"
        drawn.finding(claim, "proportional", f"differ by a factor {ratio:.2f}", len(found), ratio < 1.5, test, see=_PAGE)


FIG6 = Figure(
    "fig6", "Rewiring of DEEP R during training on MNIST", "Figure 6 (appendix D)",
    "Newborns per iteration start small, settle at a stable value proportional to the number of potential connections "
    "of the layer, and stay there after the accuracy has converged.",
    panels=(Panel(runs, read),),
    notes={
        Scale.QUICK: "the same networks on the bundled digits, one seed",
        Scale.FITTED: "the paper's own settings at 1 %, 20 epochs, all three readings of where newborns go",
        Scale.FULL: "the paper's own settings at 1 %, 20 epochs, all three readings of where newborns go",
    },
    costs={Scale.QUICK: "2 s", Scale.FITTED: "1 min", Scale.FULL: "1 min"},
)  # fmt: skip
