"""experiment.json: what a reproduced figure leaves behind. Unknown keys are ignored and optional ones may be missing;
what is there and wrong is an error that names the file and the key: a figure must not lose a curve without a word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from .records import number, whole, words
from .runs import ReportError, find_runs, is_run, read_object

NAME = "experiment.json"
FORMAT = 1
STYLES = ("line", "points", "rule", "band")


class Point(NamedTuple):
    """A mean over seeds; low and high are one standard deviation below and above it."""

    x: float | None
    y: float | None
    low: float | None
    high: float | None
    label: str | None


class FigureLine(NamedTuple):
    """One curve: a line with whiskers, bare points, a line with a band, or a rule over the whole width."""

    name: str
    method: str | None
    style: str
    points: tuple[Point, ...]


class Label(NamedTuple):
    text: str
    log: bool
    percent: bool


class LinesChart(NamedTuple):
    title: str
    x: Label
    y: Label
    lines: tuple[FigureLine, ...]


class GridChart(NamedTuple):
    """A table of numbers by two settings; None where there is none."""

    title: str
    x: Label
    y: Label
    value: Label
    columns: tuple[float | str, ...]
    rows: tuple[float | str, ...]
    cells: tuple[tuple[float | None, ...], ...]


class UnknownChart(NamedTuple):
    title: str
    kind: str


AnyChart = LinesChart | GridChart | UnknownChart


class ResultTable(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str | None


class Finding(NamedTuple):
    """A claim of the paper and what came out here; `holds` is None where it is not decided."""

    claim: str
    paper: str | None
    ours: str | None
    seeds: int | None
    holds: bool | None
    test: str | None  # what decides
    note: str | None
    see: str | None  # the page that explains a contradiction


class Experiment:
    def __init__(self, path: Path, root: _Object) -> None:
        self.path, self.name = path, root.needed_text("name")
        self.title = root.text("title") or self.name
        self.paper, self.claim, self.command = map(root.text, ("paper", "claim", "command"))
        self.scale, self.scale_note, self.seeds = root.text("scale"), root.text("scale_note"), root.count("seeds")
        self.hours, self.counted = root.number("hours"), root.count("counted")  # of one core, and of runs
        found = root.value("settings", "an object", lambda value: value is None or isinstance(value, dict))
        self.settings: Mapping[str, Any] = found or {}
        self.charts = tuple(map(_chart, root.objects("charts")))
        self.tables = tuple(map(_table, root.objects("tables")))
        self.findings = tuple(map(_finding, root.objects("findings")))
        self.runs = tuple(_run(root, index, run) for index, run in enumerate(root.items("runs")))
        # Where the runs that are worth a look would be; they need not be there.
        self.run_folders = [path.parent.parent / run for run in self.runs]


class Sources(NamedTuple):
    experiments: list[Experiment]
    runs: list[Path]


def find_sources(folders: Iterable[Path]) -> Sources:
    """In each folder its experiments and those of the runs they name that were kept; without any, all its runs."""
    experiments: dict[Path, Experiment] = {}
    runs: dict[Path, Path] = {}
    for folder in map(Path, folders):
        paths = sorted(folder.rglob(NAME), key=_natural) if folder.is_dir() else []
        found = [read_experiment(path) for path in paths]
        experiments.update((experiment.path.resolve(), experiment) for experiment in found)
        named = [run for experiment in found for run in experiment.run_folders if is_run(run)]
        for run in named if found else find_runs([folder]):
            runs.setdefault(run.resolve(), run)
    return Sources(list(experiments.values()), list(runs.values()))


def _natural(path: Path) -> list[list[tuple[int, str]]]:
    """For sorting fig2 before fig10."""
    parts = [filter(None, re.split(r"(\d+)", part)) for part in path.parts]
    return [[(int(text), "") if text.isdecimal() else (-1, text) for text in part] for part in parts]


def read_experiment(path: Path) -> Experiment:
    """Read one experiment.json; a ReportError names the file, and the key that is wrong."""
    try:
        root = _Object(path, "", read_object(path))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error}") from error
    later = f"{FORMAT}: this is no experiment, or one of a later version"
    root.value("format", later, lambda value: whole(value) == FORMAT)
    return Experiment(path, root)


@dataclass(frozen=True)
class _Object:
    """A JSON object that knows where it stands, so that an error can say it."""

    file: Path
    key: str
    content: Mapping[str, Any]

    def place(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name

    def wrong(self, name: str, rule: str) -> ReportError:
        shown = repr(self.content.get(name))
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        missing = "" if name in self.content else ", but is missing"
        return ReportError(f"{self.file}: {self.place(name)} (={shown}) must be {rule}{missing}")

    def value(self, name: str, rule: str, holds: Callable[[Any], bool], default: Any = None) -> Any:
        value = self.content.get(name, default)
        if not holds(value):
            raise self.wrong(name, rule)
        return value

    def text(self, name: str) -> str | None:
        return words(self.value(name, "a text", lambda value: not isinstance(value, (dict, list))))

    def needed_text(self, name: str) -> str:
        return str(words(self.value(name, "a text", lambda value: words(value) is not None)))

    def number(self, name: str) -> float | None:
        """A number; null, and what is not finite, is a gap."""
        return number(self.value(name, "a number or null", _is_number_or_null))

    def count(self, name: str) -> int | None:
        return whole(self.value(name, "a whole number", lambda value: value is None or whole(value) is not None))

    def items(self, name: str) -> list[Any]:
        found: list[Any] = self.value(name, "a list", lambda value: isinstance(value, list), [])
        return found

    def objects(self, name: str) -> Iterator[_Object]:
        for index, item in enumerate(self.items(name)):
            place = f"{self.place(name)}[{index}]"
            if not isinstance(item, dict):
                raise ReportError(f"{self.file}: {place} must be an object, not a {type(item).__name__}")
            yield _Object(self.file, place, item)

    def label(self, name: str) -> Label:
        found = self.value(name, "an object", lambda value: isinstance(value, dict), {})
        axis = _Object(self.file, self.place(name), found)
        scale = axis.text("scale") or "linear"
        if scale not in ("linear", "log"):
            raise axis.wrong("scale", "linear or log")
        return Label(axis.text("label") or name, scale == "log", axis.content.get("percent") is True)


def _is_number_or_null(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _chart(chart: _Object) -> AnyChart:
    kind = chart.text("kind") or "lines"
    title = chart.text("title") or chart.text("id") or "Chart"
    if kind == "lines":
        return LinesChart(title, chart.label("x"), chart.label("y"), tuple(map(_line, chart.objects("series"))))
    return _grid(chart, title) if kind == "grid" else UnknownChart(title, kind)


def _line(series: _Object) -> FigureLine:
    style = series.text("style") or "line"
    if style not in STYLES:
        raise series.wrong("style", f"one of {', '.join(STYLES)}")
    points = []
    for item in series.objects("points"):
        x, y, low, high = map(item.number, ("x", "y", "low", "high"))
        points.append(Point(x, y, low, high, item.text("label")))
        if x is None and style != "rule":
            raise item.wrong("x", "a number")
    if style != "rule":
        points.sort(key=lambda point: point.x or 0.0)
    return FigureLine(series.text("name") or "series", series.text("method"), style, tuple(points))


def _grid(chart: _Object, title: str) -> GridChart:
    columns, rows = (tuple(_heading(chart, name, item) for item in chart.items(name)) for name in ("columns", "rows"))
    cells = chart.items("cells")
    if len(cells) != len(rows) or any(not isinstance(row, list) or len(row) != len(columns) for row in cells):
        raise chart.wrong("cells", f"{len(rows)} lists of {len(columns)} numbers, by rows and columns")
    if not all(_is_number_or_null(value) for row in cells for value in row):
        raise chart.wrong("cells", "numbers or null")
    x, y, value = map(chart.label, ("x", "y", "value"))
    return GridChart(title, x, y, value, columns, rows, tuple(tuple(map(number, row)) for row in cells))


def _heading(chart: _Object, name: str, item: object) -> float | str:
    value = number(item)
    found = words(item) if value is None else value
    if found is None:
        raise chart.wrong(name, "numbers or texts")
    return found


def _table(table: _Object) -> ResultTable:
    columns = tuple(map(_cell, table.items("columns")))
    rows = []
    for index, row in enumerate(table.items("rows")):
        if not isinstance(row, list) or len(row) != len(columns):
            raise ReportError(f"{table.file}: {table.place('rows')}[{index}] must be a list of {len(columns)} cells")
        rows.append(tuple(map(_cell, row)))
    return ResultTable(table.text("title") or "Table", columns, tuple(rows), table.text("note"))


def _cell(item: object) -> str:
    value = number(item)
    return f"{value:.6g}" if isinstance(item, float) and value is not None else words(item) or ""


def _finding(finding: _Object) -> Finding:
    claim = finding.needed_text("claim")
    holds = finding.value("holds", "true, false or null", lambda value: value is None or isinstance(value, bool))
    paper, ours, test, note, see = map(finding.text, ("paper", "ours", "test", "note", "see"))
    return Finding(claim, paper, ours, finding.count("seeds"), holds, test, note, see)


def _run(root: _Object, index: int, run: object) -> str:
    path = PurePosixPath(run) if isinstance(run, str) else None
    if path is None or path.is_absolute() or ".." in path.parts or not path.parts:
        raise ReportError(f"{root.file}: runs[{index}] (={run!r}) must be a path below the folder of the experiments")
    return str(path)
