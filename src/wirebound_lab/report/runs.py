"""A run folder as the report sees it: config.json, summary.json and metrics.jsonl."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .records import Records, mapping, number, numbers, objects, read_records, whole, words
from .wording import shown_name

FILES = ("config.json", "summary.json", "metrics.jsonl")


class ReportError(ValueError):
    """A run folder cannot be reported on, or the page cannot be written."""


class RunLayer(NamedTuple):
    name: str
    shape: tuple[int, ...]
    possible: int | None
    initial: int | None
    final: int | None


class Paper(NamedTuple):
    claim: str | None
    accuracy: float | None
    connectivity: float | None
    source: str | None


class Run:
    """One run folder, read once; whatever is not in its files is None, or an empty list."""

    def __init__(self, folder: Path, config: Mapping[str, Any], summary: Mapping[str, Any], records: Records) -> None:
        self.folder, self.config, self.summary, self.records = folder, config, summary, records

        def setting(key: str) -> object:
            value = summary.get(key)
            return config.get(key) if value is None else value

        self.name = folder.name or str(folder)
        self.method = words(setting("method")) or "unknown method"
        self.title = words(summary.get("title")) or shown_name(self.method)
        self.data = words(setting("data")) or "unknown data"
        self.heading = f"{self.title} on {shown_name(self.data)}"
        self.seed = words(setting("seed"))
        self.connectivity = number(setting("connectivity"))
        self.epochs, self.steps = whole(setting("epochs")), whole(summary.get("steps"))
        self.seconds = number(summary.get("seconds"))
        self.possible = whole(summary.get("possible"))
        # None for a method that promises none.
        self.budget = whole(summary["budget"] if "budget" in summary else config.get("budget"))
        # Of the last epoch; None for an interrupted run.
        self.accuracy = number(summary.get("test_accuracy"))
        self.finished = self.accuracy is not None
        # What accuracies and losses were measured on: a run that tunes settings keeps off the test set.
        self.part = "validation" if summary.get("evaluated_on") == "validation" else "test"
        self.layers = [_layer(layer, index) for index, layer in enumerate(objects(summary.get("layers")), start=1)]
        self.ledger = [
            (words(line.get("part")) or "part", whole(line.get("bytes")), words(line.get("note")) or "")
            for line in objects(summary.get("ledger"))
        ]
        paper = mapping(summary.get("paper"))
        accuracy, connectivity = number(paper.get("accuracy")), number(paper.get("connectivity"))
        claim, source = words(paper.get("claim")), words(paper.get("source"))
        self.paper = Paper(claim, accuracy, connectivity, source) if paper else None
        # Fewest and most active connections, by the summary and by every recorded step.
        seen = [whole(summary.get("min_active")), whole(summary.get("max_active"))]
        seen += [count for window in records.windows for count in (window.active_min, window.active_max)]
        counts = [count for count in (*seen, *(epoch.active for epoch in records.epochs)) if count is not None]
        self.active_range = (min(counts), max(counts)) if counts else None

    @property
    def budget_kept(self) -> bool | None:
        """Whether exactly the budget was active at every step; None without a budget or without records."""
        if self.budget is None or self.active_range is None:
            return None
        return self.active_range == (self.budget, self.budget)


def _layer(layer: Mapping[str, Any], index: int) -> RunLayer:
    name = words(layer.get("name"))
    # A place in an nn.Sequential ("0", "2") says little to a reader; the number of the layer does.
    shown = f"layer {index}" if name is None or name.isdigit() else name
    shape = tuple(int(side) for side in numbers(layer.get("shape")) if side is not None)
    return RunLayer(shown, shape, *(whole(layer.get(key)) for key in ("possible", "initial", "final")))


def read_run(folder: Path) -> Run:
    """Read one run folder; a ReportError names the folder and what is missing in it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ReportError(f"run folder (={folder}) must be an existing folder")
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        why = ", ".join(missing) + (" (the run has not finished)" if missing == ["summary.json"] else "")
        raise ReportError(f"run folder (={folder}) must hold {', '.join(FILES)}; missing: {why}")
    try:
        config, summary = read_object(folder / "config.json"), read_object(folder / "summary.json")
        # The name of "." is empty; the resolved one is what a reader knows the run by.
        return Run(folder.resolve(), config, summary, read_records(folder / "metrics.jsonl"))
    except OSError as error:
        raise ReportError(f"run folder (={folder}) cannot be read: {error}") from error


def is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Each folder itself if it is a run folder or holds none, otherwise the run folders below it, by name."""
    found: list[Path] = []
    for folder in map(Path, folders):
        below: list[Path] = []
        if folder.is_dir() and not (folder / "summary.json").is_file():
            summaries = folder.rglob("summary.json")
            below = sorted(path.parent for path in summaries if (path.parent / "metrics.jsonl").is_file())
        found += below or [folder]
    return list(dict.fromkeys(found))


def read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} must hold one JSON object: {error}") from error
    if not isinstance(value, dict):
        raise ReportError(f"{path} must hold one JSON object, not a {type(value).__name__}")
    return value
