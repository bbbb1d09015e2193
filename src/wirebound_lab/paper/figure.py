"""What a figure is: a claim of the paper, the runs that test it, and how charts and findings follow from them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from wirebound.engine.modules import DivergedError
from wirebound_lab.paper.curves import Mean, mean_of_key, read_metrics
from wirebound_lab.paper.job import Job, Summary

Runs: TypeAlias = Mapping[str, Mapping[Any, Sequence[Any]]]  # jobs by what they show, point of its scan, and seed


class Scale(enum.Enum):
    """How much is run."""

    QUICK = "quick"  # a look: small data, few epochs; decides nothing
    FITTED = "fitted"  # what a small machine can do in reasonable time
    FULL = "full"  # the paper's own schedule, and every point with all seeds


@dataclass(frozen=True)
class Outcomes:
    """The runs of a figure: summaries of those that ended, reasons of those that diverged, by their folder."""

    runs: Path  # DIR/runs
    summaries: Mapping[str, Summary]
    lost: Mapping[str, str]
    missing: Sequence[str] = ()  # not run yet

    def of(self, jobs: Sequence[Job]) -> list[Summary]:
        """Summaries of those among ``jobs`` that ended."""
        return [self.summaries[job.folder] for job in jobs if job.folder in self.summaries]

    def ended(self, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in jobs if job.folder in self.summaries]

    def check_all(self) -> None:
        """For who needs every run: an error that names those that diverged."""
        if self.lost:
            raise DivergedError("; ".join(f"{folder}: {why}" for folder, why in self.lost.items()))

    def metrics(self, job: Job, kind: str) -> list[dict[str, Any]]:
        """The records of one kind in ``metrics.jsonl`` of a run that ended."""
        return read_metrics(self.runs / job.folder / "metrics.jsonl", kind)


@dataclass(frozen=True)
class Reading:
    """What a panel reads: its runs at a scale, and how they ended."""

    scale: Scale
    seeds: int
    runs: Runs
    done: Outcomes

    def groups(self, what: str) -> list[list[Summary]]:
        """For each point, the summaries of the seeds that ended."""
        return [self.done.of(jobs) for jobs in self.runs[what].values()]

    def mean(self, jobs: Sequence[Job], key: str = "test_accuracy") -> Mean | None:
        return mean_of_key(self.done.of(jobs), key)


@dataclass
class Drawn:
    """What a panel has to show: the middle of ``experiment.json``."""

    scale: Scale
    settings: dict[str, Any] = field(default_factory=dict)
    charts: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    runs: list[Job] = field(default_factory=list)  # worth a look

    def finding(
        self, claim: str, paper: str, ours: str, seeds: int, holds: bool | None, note: str | None = None
    ) -> None:
        """A claim beside what was found. A quick look decides nothing."""
        if self.scale is Scale.QUICK:
            holds, note = None, "a quick look on small data decides nothing"
        found = {"claim": claim, "paper": paper, "ours": ours, "seeds": seeds, "holds": holds}
        self.findings.append(found if note is None else {**found, "note": note})

    def add(self, other: Drawn) -> None:
        self.settings |= other.settings
        self.charts += other.charts
        self.tables += other.tables
        self.findings += other.findings
        self.runs += other.runs


@dataclass(frozen=True)
class Panel:
    """A figure, or one task of a figure that has several."""

    runs: Callable[[Scale, int], Runs]  # what it needs, for a scale and a number of seeds
    read: Callable[[Reading], Drawn]  # some of the runs may be missing because they diverged
    later: Callable[[Reading], Runs] | None = None  # runs whose settings follow from those of ``runs``


@dataclass(frozen=True)
class Figure:
    """One figure of the paper."""

    name: str  # as on the command line
    title: str  # what it shows
    paper: str  # where it is in the paper
    claim: str  # what the paper says
    panels: tuple[Panel, ...]
    notes: Mapping[Scale, str]  # what is run at each scale
    costs: Mapping[Scale, str]  # roughly how long that takes on one core
    seeds: int = 3  # as many by default

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return flat(panel.runs(scale, seeds) for panel in self.panels)

    def later(self, scale: Scale, seeds: int, done: Outcomes) -> list[Job]:
        return flat(p.later(Reading(scale, seeds, p.runs(scale, seeds), done)) for p in self.panels if p.later)

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        whole = Drawn(scale)
        for panel in self.panels:
            whole.add(panel.read(Reading(scale, seeds, panel.runs(scale, seeds), done)))
        return whole


def flat(all_runs: Iterable[Runs]) -> list[Job]:
    return [job for runs in all_runs for points in runs.values() for jobs in points.values() for job in jobs]


def scan(make: Callable[..., Job], scale: Scale, points: Iterable[Any], seeds: int) -> dict[Any, list[Job]]:
    """The runs ``make(scale, *point, seed)`` of every point, which is one setting or a tuple of several."""
    return {p: [make(scale, *(p if isinstance(p, tuple) else (p,)), s) for s in range(seeds)] for p in points}
