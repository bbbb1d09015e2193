"""What a figure is: a claim of the paper, the runs that test it, and how charts and findings follow from them."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wirebound_lab.paper.curves import read_metrics
from wirebound_lab.paper.job import Job, Summary


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

    def metrics(self, job: Job, kind: str) -> list[dict[str, Any]]:
        """The records of one kind in ``metrics.jsonl`` of a run that ended."""
        return read_metrics(self.runs / job.folder / "metrics.jsonl", kind)


@dataclass
class Drawn:
    """What a part of a figure has to show: the middle of ``experiment.json``."""

    settings: dict[str, Any] = field(default_factory=dict)
    charts: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    runs: list[Job] = field(default_factory=list)  # worth a look

    def add(self, other: Drawn) -> None:
        self.settings |= other.settings
        self.charts += other.charts
        self.tables += other.tables
        self.findings += other.findings
        self.runs += other.runs


class Part(ABC):
    """A figure, or the panel of one that has several tasks."""

    @abstractmethod
    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        """The runs that it needs."""

    def later(self, scale: Scale, seeds: int, done: Outcomes) -> list[Job]:
        """Runs whose settings follow from those of ``jobs``."""
        return []

    @abstractmethod
    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        """Charts, tables and findings; some of the runs may be missing because they diverged."""


@dataclass(frozen=True)
class Figure:
    """One figure of the paper.

    Args:
        name: as on the command line.
        title: what it shows.
        paper: where it is in the paper.
        claim: what the paper says.
        parts: its panels by task, mostly one.
        notes: what is run at each scale.
        costs: roughly how long that takes on one core.
        seeds: as many by default.
    """

    name: str
    title: str
    paper: str
    claim: str
    parts: tuple[Part, ...]
    notes: Mapping[Scale, str]
    costs: Mapping[Scale, str]
    seeds: int = 3

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return [job for part in self.parts for job in part.jobs(scale, seeds)]

    def later(self, scale: Scale, seeds: int, done: Outcomes) -> list[Job]:
        return [job for part in self.parts for job in part.later(scale, seeds, done)]

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        whole = Drawn()
        for part in self.parts:
            whole.add(part.plot(scale, seeds, done))
        return whole
