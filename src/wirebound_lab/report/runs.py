"""A run folder as the report sees it: config.json, summary.json and metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .records import Records, read_records
from .values import mapping, number, numbers, objects, whole, words

FILES = ("config.json", "summary.json", "metrics.jsonl")


class ReportError(ValueError):
    """A run folder cannot be reported on, or the page cannot be written."""


@dataclass(frozen=True)
class Layer:
    """Connections of one layer, before and after training."""

    name: str
    shape: tuple[int, ...]
    possible: int | None
    initial: int | None
    final: int | None


@dataclass(frozen=True)
class LedgerLine:
    """Bytes held by one part."""

    part: str
    bytes: int | None
    note: str


@dataclass(frozen=True)
class Paper:
    """The figure of the paper that a run stands beside; accuracy and connectivity are fractions."""

    claim: str | None
    accuracy: float | None
    connectivity: float | None
    source: str | None


@dataclass(frozen=True)
class Run:
    """One run folder, read once."""

    folder: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    records: Records

    def setting(self, key: str) -> object:
        """From summary.json, or else from config.json."""
        value = self.summary.get(key)
        return self.config.get(key) if value is None else value

    @property
    def name(self) -> str:
        return self.folder.name or str(self.folder)

    @property
    def method(self) -> str:
        return words(self.setting("method")) or "unknown method"

    @property
    def data(self) -> str:
        return words(self.setting("data")) or "unknown data"

    @property
    def seed(self) -> str | None:
        return words(self.setting("seed"))

    @property
    def budget(self) -> int | None:
        """None for a method that promises none."""
        return whole(self.summary["budget"] if "budget" in self.summary else self.config.get("budget"))

    @property
    def possible(self) -> int | None:
        return whole(self.summary.get("possible"))

    @property
    def connectivity(self) -> float | None:
        return number(self.setting("connectivity"))

    @property
    def steps(self) -> int | None:
        return whole(self.summary.get("steps"))

    @property
    def epochs(self) -> int | None:
        return whole(self.setting("epochs"))

    @property
    def seconds(self) -> float | None:
        return number(self.summary.get("seconds"))

    @property
    def part(self) -> str:
        """What accuracies and losses were measured on: a run that tunes settings keeps off the test set."""
        return "validation" if self.summary.get("evaluated_on") == "validation" else "test"

    @property
    def finished(self) -> bool:
        return self.accuracy is not None

    @property
    def accuracy(self) -> float | None:
        """Of the last epoch, as the summary has it; None for an interrupted run."""
        return number(self.summary.get("test_accuracy"))

    @property
    def active_range(self) -> tuple[int, int] | None:
        """Fewest and most active connections, by the summary and by every recorded step."""
        seen = [whole(self.summary.get("min_active")), whole(self.summary.get("max_active"))]
        for window in self.records.windows:
            seen += [window.active_min, window.active_max]
        seen += [epoch.active for epoch in self.records.epochs]
        counts = [count for count in seen if count is not None]
        return (min(counts), max(counts)) if counts else None

    @property
    def budget_kept(self) -> bool | None:
        """Whether exactly the budget was active at every step; None without a budget or without records."""
        if self.budget is None or self.active_range is None:
            return None
        return self.active_range == (self.budget, self.budget)

    @property
    def layers(self) -> list[Layer]:
        return [
            Layer(
                name=_layer_name(words(layer.get("name")), index),
                shape=tuple(int(side) for side in numbers(layer.get("shape")) if side is not None),
                possible=whole(layer.get("possible")),
                initial=whole(layer.get("initial")),
                final=whole(layer.get("final")),
            )
            for index, layer in enumerate(objects(self.summary.get("layers")), start=1)
        ]

    @property
    def ledger(self) -> list[LedgerLine]:
        return [
            LedgerLine(
                words(line.get("part")) or "part", whole(line.get("bytes")), words(line.get("note")) or ""
            )
            for line in objects(self.summary.get("ledger"))
        ]

    @property
    def paper(self) -> Paper | None:
        paper = mapping(self.summary.get("paper"))
        if not paper:
            return None
        return Paper(
            claim=words(paper.get("claim")),
            accuracy=number(paper.get("accuracy")),
            connectivity=number(paper.get("connectivity")),
            source=words(paper.get("source")),
        )


def read_run(folder: Path) -> Run:
    """Read one run folder; a ReportError names the folder and what is missing in it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ReportError(f"run folder (={folder}) must be an existing folder")
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        unfinished = " (the run has not finished)" if missing == ["summary.json"] else ""
        needed = ", ".join(FILES)
        raise ReportError(
            f"run folder (={folder}) must hold {needed}; missing: {', '.join(missing)}{unfinished}"
        )
    try:
        return Run(
            # The name of "." is empty; the resolved one is what a reader knows the run by.
            folder=folder.resolve(),
            config=read_object(folder / "config.json"),
            summary=read_object(folder / "summary.json"),
            records=read_records(folder / "metrics.jsonl"),
        )
    except OSError as error:
        raise ReportError(f"run folder (={folder}) cannot be read: {error}") from error


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Each folder itself if it is a run folder, otherwise the run folders below it, ordered by name.

    A folder that holds no run is passed on as it is, so that read_run can say what is missing in it.
    """
    found: list[Path] = []
    for folder in map(Path, folders):
        if (folder / "summary.json").is_file() or not folder.is_dir():
            found.append(folder)
            continue
        below = sorted(
            path.parent for path in folder.rglob("summary.json") if (path.parent / "metrics.jsonl").is_file()
        )
        found += below or [folder]
    return list(dict.fromkeys(found))


def _layer_name(name: str | None, index: int) -> str:
    """A place in an nn.Sequential ("0", "2") says little to a reader; the number of the layer does."""
    return f"layer {index}" if name is None or name.isdigit() else name


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} must hold one JSON object: {error}") from error
    if not isinstance(value, dict):
        raise ReportError(f"{path} must hold one JSON object, not a {type(value).__name__}")
    return value
