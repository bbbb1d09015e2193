"""experiment.json: what a reproduced figure leaves behind, read and checked.

Keys that are not known here are ignored and optional ones may be missing, so older and newer files still make a page.
What is there and wrong is an error that names the file and the key: a figure must not lose a curve without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .experiment import Experiment, Finding, GridChart, Label, Line, LinesChart, Point, Table, UnknownChart
from .runs import ReportError, read_object
from .values import number, whole, words

NAME = "experiment.json"
FORMAT = 1
STYLES = ("line", "points", "rule", "band")


def read_experiment(path: Path) -> Experiment:
    """Read one experiment.json; a ReportError names the file, and the key that is wrong."""
    try:
        content = read_object(path)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error}") from error
    root = _Object(path, "", content)
    if whole(content.get("format")) != FORMAT:
        raise root.wrong("format", f"{FORMAT}: this is no experiment, or one of a later version")
    name = root.text("name")
    if name is None:
        raise root.wrong("name", "a text")
    settings = content.get("settings")
    if settings is not None and not isinstance(settings, dict):
        raise root.wrong("settings", "an object")
    return Experiment(
        path=path,
        name=name,
        title=root.text("title") or name,
        paper=root.text("paper"),
        claim=root.text("claim"),
        scale=root.text("scale"),
        scale_note=root.text("scale_note"),
        seeds=root.count("seeds"),
        command=root.text("command"),
        settings=settings or {},
        charts=tuple(_chart(chart) for chart in root.objects("charts")),
        tables=tuple(_table(table) for table in root.objects("tables")),
        findings=tuple(_finding(finding) for finding in root.objects("findings")),
        runs=tuple(_run(root, index, run) for index, run in enumerate(root.items("runs"))),
    )


def find_experiments(folder: Path) -> list[Path]:
    """The experiment.json files in and below a folder, fig2 before fig10."""
    return sorted(folder.rglob(NAME), key=lambda path: [_natural(part) for part in path.parts])


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text) if part]


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

    def number(self, name: str) -> float | None:
        """A number; null, and what is not finite, is a gap."""
        value = self.content.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise self.wrong(name, "a number or null")
        return number(value)

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


def _line(series: _Object) -> Line:
    style = series.text("style") or "line"
    if style not in STYLES:
        raise series.wrong("style", f"one of {', '.join(STYLES)}")
    points = []
    for item in series.objects("points"):
        x, y, low, high = (item.number(name) for name in ("x", "y", "low", "high"))
        point = Point(x, y, low, high, item.text("label"))
        if point.x is None and style != "rule":
            raise item.wrong("x", "a number")
        points.append(point)
    if style != "rule":
        points.sort(key=lambda point: point.x or 0.0)
    return Line(series.text("name") or "series", series.text("method"), style, tuple(points))


def _grid(chart: _Object, title: str) -> GridChart:
    columns, rows = ([_heading(chart, name, item) for item in chart.items(name)] for name in ("columns", "rows"))
    cells = chart.items("cells")
    if len(cells) != len(rows) or any(not isinstance(row, list) or len(row) != len(columns) for row in cells):
        raise chart.wrong("cells", f"{len(rows)} lists of {len(columns)} numbers, by rows and columns")
    if any(value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)))
           for row in cells for value in row):  # fmt: skip
        raise chart.wrong("cells", "numbers or null")
    numbers = tuple(tuple(number(value) for value in row) for row in cells)
    x, y, value = (_label(chart, name) for name in ("x", "y", "value"))
    return GridChart(title, x, y, value, tuple(columns), tuple(rows), numbers)


def _heading(chart: _Object, name: str, item: object) -> float | str:
    value = number(item)
    text = words(item) if value is None else None
    if value is None and text is None:
        raise chart.wrong(name, "numbers or texts")
    return text if text is not None else value or 0.0


def _table(table: _Object) -> Table:
    columns = tuple(_cell(item) for item in table.items("columns"))
    rows = []
    for index, row in enumerate(table.items("rows")):
        if not isinstance(row, list) or len(row) != len(columns):
            raise ReportError(f"{table.file}: {table.place('rows')}[{index}] must be a list of {len(columns)} cells")
        rows.append(tuple(_cell(item) for item in row))
    return Table(table.text("title") or "Table", columns, tuple(rows), table.text("note"))


def _cell(item: object) -> str:
    value = number(item)
    return f"{value:.6g}" if isinstance(item, float) and value is not None else words(item) or ""


def _finding(finding: _Object) -> Finding:
    claim, holds = finding.text("claim"), finding.content.get("holds")
    if claim is None:
        raise finding.wrong("claim", "a text")
    if not (holds is None or isinstance(holds, bool)):
        raise finding.wrong("holds", "true, false or null")
    return Finding(
        claim, finding.text("paper"), finding.text("ours"), finding.count("seeds"), holds, finding.text("note")
    )


def _run(root: _Object, index: int, run: object) -> str:
    path = PurePosixPath(run) if isinstance(run, str) else None
    if path is None or path.is_absolute() or ".." in path.parts or not path.parts:
        raise ReportError(f"{root.file}: runs[{index}] (={run!r}) must be a path below the folder of the experiments")
    return str(path)
