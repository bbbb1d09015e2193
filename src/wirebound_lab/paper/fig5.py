"""Figure 5 (appendix): pruning over a grid of weight decay and quality factor.

Accuracy and connectivity at each point; nothing is chosen, so the test set may be looked at.
"""

import itertools
from functools import partial
from typing import Any

from wirebound_lab.paper.figure import Drawn, Figure, Panel, Reading, Scale
from wirebound_lab.paper.task_runs import MNIST

runs = partial(MNIST.runs, methods=("pruning",))


def read(r: Reading) -> Drawn:
    grid = r.runs["pruning"]
    decays, qualities = (list(dict.fromkeys(values)) for values in zip(*grid, strict=True))
    settings = {**MNIST.settings, "pruning": "train, prune, train, prune, train, a third of the steps each, with ℓ2"}
    del settings["DEEP R"], settings["soft-DEEP R"]
    drawn = Drawn(r.scale, settings, runs=[grid[decays[0], q][0] for q in qualities])
    accuracy, connectivity = (
        {at: mean for at, jobs in grid.items() if (mean := r.mean(jobs, key)) is not None}
        for key in ("test_accuracy", "connectivity")
    )
    for title, found in (("Test accuracy", accuracy), ("Connectivity at the end", connectivity)):
        drawn.charts.append({
            "id": "accuracy" if found is accuracy else "connectivity", "kind": "grid", "title": title,
            "x": {"label": "quality factor q"}, "y": {"label": "weight decay"},
            "value": {"label": title.lower(), "percent": True}, "columns": qualities, "rows": decays,
            "cells": [[found[d, q].value if (d, q) in found else None for q in qualities] for d in decays],
        })  # fmt: skip
    if not accuracy:
        return drawn

    def words(at: Any) -> str:
        return f"{accuracy[at].percent()} with {100 * connectivity[at].value:.2g} % (decay {at[0]:g}, q {at[1]:g})"

    rows = [[connectivity[d, q].value for q in qualities if (d, q) in connectivity] for d in decays]
    rising = [all(a >= b for a, b in itertools.pairwise(row)) for row in rows]
    ours = f"{sum(rising)} of {len(decays)} weight decays"
    claim = "a higher quality factor gives a sparser network"
    drawn.finding(claim, "grid", ours, r.seeds, all(rising), "connectivity falls at every weight decay")
    sparse = min(accuracy, key=lambda at: connectivity[at].value)
    best = max(accuracy, key=lambda at: accuracy[at].value)
    claim = "pruning trades accuracy for connectivity: the sparsest point of the grid is far below its best one"
    holds = accuracy[best].value - accuracy[sparse].value > 0.1
    drawn.finding(claim, "grid", f"{words(best)}; {words(sparse)}", r.seeds, holds, "more than 10 points below")
    return drawn


FIG5 = Figure(
    "fig5", "Pruning on MNIST: weight decay × quality factor", "Figure 5 (appendix A)",
    "The settings of the pruning algorithm were searched over a grid of weight decay and quality factor; those that "
    "leave few connections lose accuracy.",
    panels=(Panel(runs, read),),
    notes={
        Scale.QUICK: "2 × 2 points on the bundled digits",
        Scale.FITTED: "3 × 4 points in the paper's settings, three seeds each; the paper's own grid values are not printed",
        Scale.FULL: "3 × 4 points in the paper's settings with all seeds; the paper's own grid values are not printed",
    },
    costs={Scale.QUICK: "5 s", Scale.FITTED: "11 min", Scale.FULL: "35 min"},
)  # fmt: skip
