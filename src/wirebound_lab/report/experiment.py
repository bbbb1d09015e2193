"""A reproduced figure as the page sees it; ``experiment_file.py`` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Point:
    """A mean over seeds; low and high are one standard deviation below and above it."""

    x: float | None
    y: float | None
    low: float | None = None
    high: float | None = None
    label: str | None = None


@dataclass(frozen=True)
class Line:
    """One curve: a line with whiskers, bare points, a line with a band, or a rule over the whole width."""

    name: str
    method: str | None
    style: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Label:
    """What stands at an axis."""

    text: str
    log: bool
    percent: bool


@dataclass(frozen=True)
class LinesChart:
    """Curves over a common axis."""

    title: str
    x: Label
    y: Label
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class GridChart:
    """A table of numbers by two settings; None where there is none."""

    title: str
    x: Label
    y: Label
    value: Label
    columns: tuple[float | str, ...]
    rows: tuple[float | str, ...]
    cells: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class UnknownChart:
    """A kind of chart that a later version writes."""

    title: str
    kind: str


@dataclass(frozen=True)
class Table:
    """Cells as they are to be read."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str | None


@dataclass(frozen=True)
class Finding:
    """A claim of the paper and what came out here; `holds` is None where it is not decided."""

    claim: str
    paper: str | None
    ours: str | None
    seeds: int | None
    holds: bool | None
    note: str | None


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper, run again."""

    path: Path
    name: str
    title: str
    paper: str | None = None
    claim: str | None = None
    scale: str | None = None
    scale_note: str | None = None
    seeds: int | None = None
    command: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    charts: tuple[LinesChart | GridChart | UnknownChart, ...] = ()
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()
    runs: tuple[str, ...] = ()

    @property
    def run_folders(self) -> list[Path]:
        """Where the runs that are worth a look would be; they need not be there."""
        return [self.path.parent.parent / run for run in self.runs]
