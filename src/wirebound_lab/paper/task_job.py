"""What figures of tasks with long runs have in common: their runs by method, how many seeds, differences seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirebound_lab.paper.curves import Mean, mean_of
from wirebound_lab.paper.figure import Outcomes, Scale
from wirebound_lab.paper.job import TrainJob
from wirebound_lab.run.config import make_config


@dataclass(frozen=True)
class TaskRuns:
    """The runs of a task that several figures share.

    Args:
        folder: where runs at the fitted scale are, below DIR/runs.
        common: settings of all runs at each scale.
        soft_l1: α of soft-DEEP R, from which T and θ_min follow by the paper's rule α = 3√(2T/η) = −θ_min/3.
        stored: settings of the methods that store whole matrices and are not shrunk, dense training and pruning.
    """

    folder: Callable[[], str]
    common: Mapping[Scale, Mapping[str, Any]]
    soft_l1: float
    stored: Mapping[str, Any] = field(default_factory=dict)

    def deep_r(self, scale: Scale, level: float, seed: int) -> TrainJob:
        """DEEP R as in the paper."""
        return self._job(scale, f"deep-r-{level:g}", seed, method="deep-r", connectivity=level)

    def fixed(self, scale: Scale, level: float, seed: int) -> TrainJob:
        return self._job(scale, f"fixed-{level:g}", seed, method="fixed", connectivity=level)

    def dense(self, scale: Scale, seed: int) -> TrainJob:
        return self._job(scale, "dense", seed, method="dense", **self.stored)

    def soft(self, scale: Scale, start: float, seed: int) -> TrainJob:
        own = {"method": "soft-deep-r", "connectivity": start, "l1": self.soft_l1}
        return self._job(scale, f"soft-deep-r-{start:g}-l1-{self.soft_l1:g}", seed, **own)

    def pruning(self, scale: Scale, level: float, seed: int) -> TrainJob:
        """Pruning to a connectivity, in two cuts at a third and two thirds of the training."""
        return self._job(scale, f"pruning-{level:g}", seed, method="pruning", connectivity=level, **self.stored)

    def l1_shrinkage(self, scale: Scale, l1: float, seed: int) -> TrainJob:
        return self._job(scale, f"l1-shrinkage-{l1:g}", seed, method="l1-shrinkage", l1=l1)

    def _job(self, scale: Scale, words: str, seed: int, **own: Any) -> TrainJob:
        prefix = self.folder() + ("" if scale is Scale.FITTED else f"-{scale.value}")
        return TrainJob(f"{prefix}/{words}-s{seed}", make_config(self.common[scale], own, {"seed": seed}))


def affordable(scale: Scale, seeds: int) -> int:
    """Seeds of these runs, which take minutes each: two at most, unless all is asked for."""
    return seeds if scale is Scale.FULL else min(seeds, 2)


@dataclass(frozen=True)
class Difference(Mean):
    """A difference over seeds, each between two runs of the same seed."""

    least: float

    def words(self, above: str, below: str) -> str:
        """As in "1.59 ± 0.16 % more error": the difference without its sign, and what it is."""
        return f"{Mean(abs(self.value), self.spread, self.count).percent()} {above if self.value >= 0 else below}"


def difference(done: Outcomes, more: Sequence[TrainJob], less: Sequence[TrainJob], key: str) -> Difference | None:
    """``more`` − ``less``, seed by seed; None where no seed has both."""
    found = done.summaries
    both = [(a.folder, b.folder) for a, b in zip(more, less, strict=False) if a.folder in found and b.folder in found]
    pairs = [found[a][key] - found[b][key] for a, b in both]
    mean = mean_of(pairs)
    return None if mean is None else Difference(mean.value, mean.spread, mean.count, min(pairs))
