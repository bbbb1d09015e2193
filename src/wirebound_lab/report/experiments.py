"""experiment.json: what a reproduced figure leaves behind, read and checked.

Keys that are not known here are ignored and optional ones may be missing, so older and newer files still make a page.
What is there and wrong is an error that names the file and the key: a figure must not lose a curve without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from .runs import ReportError, find_runs, is_run, read_object
from .values import number, whole, words

NAME = "experiment.json"
FORMAT = 1
STYLES = ("line", "points", "rule", "band")


@dataclass(frozen=True)
class Point:
    """A mean over seeds; low and high are one standard deviation below and above it."""

    x: float | None
    y: float | None
    low: float | None = None
    high: float | None = None
    label: str | None = None


@dataclass(frozen=True)
class FigureLine:
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
    lines: tuple[FigureLine, ...]


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
class ResultTable:
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
    tables: tuple[ResultTable, ...] = ()
    findings: tuple[Finding, ...] = ()
    runs: tuple[str, ...] = ()

    @property
    def run_folders(self) -> list[Path]:
        """Where the runs that are worth a look would be; they need not be there."""
        return [self.path.parent.parent / run for run in self.runs]


@dataclass(frozen=True)
class Sources:
    """Experiments that have been read, and run folders that are to be."""

    experiments: list[Experiment]
    runs: list[Path]


def find_sources(folders: Iterable[Path]) -> Sources:
    """In each folder its experiments and the runs that they name; without experiments, all its runs.

    A figure may stand on a hundred runs: the page shows those that its experiment finds worth a look, if their
    folders were kept.
    """
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
        content = read_object(path)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error}") from error
    root = _Object(path, "", content)
    if whole(content.get("format")) != FORMAT:
        raise root.wrong("format", f"{FORMAT}: this is no experiment, or one of a later version")
    name = root.needed_text("name")
    settings = content.get("settings")
    if settings is not None and not isinstance(settings, dict):
        raise root.wrong("settings", "an object")
    return Experiment(
        path,
        name,
        root.text("title") or name,
        **{key: root.text(key) for key in ("paper", "claim", "scale", "scale_note", "command")},
        seeds=root.count("seeds"),
        settings=settings or {},
        charts=tuple(map(_chart, root.objects("charts"))),
        tables=tuple(map(_table, root.objects("tables"))),
        findings=tuple(map(_finding, root.objects("findings"))),
        runs=tuple(_run(root, index, run) for index, run in enumerate(root.items("runs"))),
    )


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

    def text(self, name: str) -> str | None:
        if isinstance(self.content.get(name), (dict, list)):
            raise self.wrong(name, "a text")
        return words(self.content.get(name))

    def needed_text(self, name: str) -> str:
        text = self.text(name)
        if text is None:
            raise self.wrong(name, "a text")
        return text

    def number(self, name: str) -> float | None:
        """A number; null, and what is not finite, is a gap."""
        if not _is_number_or_null(self.content.get(name)):
            raise self.wrong(name, "a number or null")
        return number(self.content.get(name))

    def count(self, name: str) -> int | None:
        value = whole(self.content.get(name))
        if value is None and self.content.get(name) is not None:
            raise self.wrong(name, "a whole number")
        return value

    def items(self, name: str) -> list[Any]:
        value = self.content.get(name, [])
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def objects(self, name: str) -> Iterator[_Object]:
        for index, item in enumerate(self.items(name)):
            place = f"{self.place(name)}[{index}]"
            if not isinstance(item, dict):
                raise ReportError(f"{self.file}: {place} must be an object, not a {type(item).__name__}")
            yield _Object(self.file, place, item)

    def object(self, name: str) -> _Object:
        value = self.content.get(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return _Object(self.file, self.place(name), value)


def _is_number_or_null(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _chart(chart: _Object) -> LinesChart | GridChart | UnknownChart:
    kind = chart.text("kind") or "lines"
    title = chart.text("title") or chart.text("id") or "Chart"
    if kind == "lines":
        return LinesChart(title, _label(chart, "x"), _label(chart, "y"), tuple(map(_line, chart.objects("series"))))
    return _grid(chart, title) if kind == "grid" else UnknownChart(title, kind)


def _label(chart: _Object, name: str) -> Label:
    axis = chart.object(name)
    scale = axis.text("scale") or "linear"
    if scale not in ("linear", "log"):
        raise axis.wrong("scale", "linear or log")
    return Label(axis.text("label") or name, scale == "log", axis.content.get("percent") is True)


def _line(series: _Object) -> FigureLine:
    style = series.text("style") or "line"
    if style not in STYLES:
        raise series.wrong("style", f"one of {', '.join(STYLES)}")
    points = []
    for item in series.objects("points"):
        x, y, low, high = map(item.number, ("x", "y", "low", "high"))
        point = Point(x, y, low, high, item.text("label"))
        if point.x is None and style != "rule":
            raise item.wrong("x", "a number")
        points.append(point)
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
    x, y, value = (_label(chart, name) for name in ("x", "y", "value"))
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
    claim, holds = finding.needed_text("claim"), finding.content.get("holds")
    if not (holds is None or isinstance(holds, bool)):
        raise finding.wrong("holds", "true, false or null")
    paper, ours, note = (finding.text(name) for name in ("paper", "ours", "note"))
    return Finding(claim, paper, ours, finding.count("seeds"), holds, note)


def _run(root: _Object, index: int, run: object) -> str:
    path = PurePosixPath(run) if isinstance(run, str) else None
    if path is None or path.is_absolute() or ".." in path.parts or not path.parts:
        raise ReportError(f"{root.file}: runs[{index}] (={run!r}) must be a path below the folder of the experiments")
    return str(path)
