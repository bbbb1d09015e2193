"""Figure 5 (appendix): pruning over a grid of weight decay and quality factor."""

from __future__ import annotations

import itertools
from typing import Any

from wirebound_lab.paper import mnist_jobs as mnist
from wirebound_lab.paper.charts import finding
from wirebound_lab.paper.curves import Mean, mean_of_key
from wirebound_lab.paper.figure import Drawn, Figure, Outcomes, Part, Scale
from wirebound_lab.paper.job import Job, TrainJob

Grid = dict[tuple[float, float], list[TrainJob]]


def grid_jobs(scale: Scale, seeds: int) -> Grid:
    """The runs at each (weight decay, quality factor)."""
    decays, qualities = mnist.pruning_grid(scale)
    count = mnist.scan_seeds(scale, seeds)
    return {(d, q): [mnist.pruning(scale, d, q, s) for s in range(count)] for d in decays for q in qualities}


class PruningGrid(Part):
    """Accuracy and connectivity at each point; nothing is chosen, so the test set may be looked at."""

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return [job for jobs in grid_jobs(scale, seeds).values() for job in jobs]

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        grid = grid_jobs(scale, seeds)
        accuracy = {at: mean_of_key(done.of(jobs), "test_accuracy") for at, jobs in grid.items()}
        connectivity = {at: mean_of_key(done.of(jobs), "connectivity") for at, jobs in grid.items()}
        settings = {**mnist.SETTINGS, "pruning": "train, prune, train, prune, train, a third of the steps each, with ℓ2"}
        del settings["DEEP R"], settings["soft-DEEP R"]
        return Drawn(
            settings=settings,
            charts=[
                _chart(scale, "accuracy", "Test accuracy", accuracy),
                _chart(scale, "connectivity", "Connectivity at the end", connectivity),
            ],
            findings=_findings(scale, accuracy, connectivity),
            runs=[grid[mnist.pruning_grid(scale)[0][0], q][0] for q in mnist.pruning_grid(scale)[1]],
        )


def _chart(scale: Scale, id: str, title: str, values: dict[tuple[float, float], Mean | None]) -> dict[str, Any]:
    decays, qualities = mnist.pruning_grid(scale)
    cells = [[mean.value if (mean := values[d, q]) else None for q in qualities] for d in decays]
    return {
        "id": id, "kind": "grid", "title": title,
        "x": {"label": "quality factor q"}, "y": {"label": "weight decay"}, "value": {"label": title.lower(), "percent": True},
        "columns": list(qualities), "rows": list(decays), "cells": cells,
    }  # fmt: skip


def _findings(
    scale: Scale, accuracy: dict[tuple[float, float], Mean | None], connectivity: dict[tuple[float, float], Mean | None]
) -> list[dict[str, Any]]:
    decays, qualities = mnist.pruning_grid(scale)
    rising = []
    for d in decays:
        row = [mean.value for q in qualities if (mean := connectivity[d, q])]
        rising.append(all(a >= b for a, b in itertools.pairwise(row)))
    ended = [at for at in accuracy if accuracy[at] and connectivity[at]]
    if not ended:
        return []
    sparse = min(ended, key=lambda at: connectivity[at].value)  # type: ignore[union-attr]
    best = max(ended, key=lambda at: accuracy[at].value)  # type: ignore[union-attr]
    ours = f"{sum(rising)} of {len(decays)} weight decays"
    return [
        finding(scale, "a higher quality factor gives a sparser network", "grid", ours, 1, all(rising), "at every weight decay"),
        finding(
            scale,
            "pruning trades accuracy for connectivity: the sparsest point of the grid is far below its best one",
            "grid",
            f"{_at(best, accuracy, connectivity)}; {_at(sparse, accuracy, connectivity)}",
            1,
            accuracy[best].value - accuracy[sparse].value > 0.1,  # type: ignore[union-attr]
            "read as: more than 10 % below",
        ),
    ]


def _at(at: tuple[float, float], accuracy: Any, connectivity: Any) -> str:
    where = f"decay {at[0]:g}, q {at[1]:g}"
    return f"{accuracy[at].percent()} with {100 * connectivity[at].value:.2g} % ({where})"


FIG5 = Figure(
    name="fig5",
    title="Pruning on MNIST: weight decay × quality factor",
    paper="Figure 5 (appendix A)",
    claim="The settings of the pruning algorithm were searched over a grid of weight decay and quality factor; those that "
    "leave few connections lose accuracy.",
    parts=(PruningGrid(),),
    notes={
        Scale.QUICK: "2 × 2 points on the bundled digits",
        Scale.FITTED: "3 × 4 points in the paper's settings, one seed each; the paper's own grid values are not printed",
        Scale.FULL: "3 × 4 points in the paper's settings with all seeds; the paper's own grid values are not printed",
    },
    costs={Scale.QUICK: "5 s", Scale.FITTED: "11 min", Scale.FULL: "35 min"},
)
