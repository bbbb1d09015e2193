"""The figures of an experiment: curves with their spread, and grids of numbers in colour."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import COLORS, Chart, Series, draw
from .experiments import Experiment, FigureLine, GridChart, Label, LinesChart, Point, UnknownChart
from .heatmap import LEVELS
from .markup import Html, figure, fragment, no_figure, scroll_table, tag
from .wording import MISSING, percent, plain_name, tick

# A method has one colour in all figures; the last, quiet one is for what the others are measured against.
METHOD_COLORS = {
    "deepr": 0, "softdeepr": 1, "pruning": 2, "magnitudepruning": 2, "l1shrinkage": 3, "constantrate": 4, "set": 5,
    "fixed": 6, "rigl": 4, "dense": 7,
}  # fmt: skip
MARKED = 30  # points of a line with marks and whiskers; more would hide it, and it gets a band


def draw_charts(experiment: Experiment, identifier: str) -> Html | None:
    """All figures of an experiment, curves two in a row unless there is only one chart of them."""
    charts = experiment.charts
    if not charts:
        return None
    wide = sum(isinstance(chart, LinesChart) for chart in charts) == 1
    drawn = (_draw(chart, f"{identifier}-chart-{index}", wide) for index, chart in enumerate(charts, 1))
    return tag("div", *drawn, class_="charts")


def _draw(chart: LinesChart | GridChart | UnknownChart, identifier: str, wide: bool) -> Html:
    if isinstance(chart, LinesChart):
        return draw(lines_chart(chart, identifier, wide))
    if isinstance(chart, GridChart):
        return draw_grid(chart)
    return no_figure(chart.title, "", f"This version of the report cannot draw charts of the kind {chart.kind!r}.")


def lines_chart(chart: LinesChart, identifier: str, wide: bool = False) -> Chart:
    """The chart for drawing; points that a logarithmic axis has no place for are omitted, and counted."""
    lost = 0
    curves = []
    for line, color in zip(chart.lines, line_colors(chart.lines), strict=True):
        points = [
            point
            for point in line.points
            if not (chart.x.log and line.style != "rule" and (point.x or 0) <= 0)
            and not (chart.y.log and point.y is not None and point.y <= 0)
        ]
        lost += len(line.points) - len(points)
        series = _rule(line, color) if line.style == "rule" else _curve(line.name, points, line.style, color)
        if series:
            curves.append(series)
    unit, x_unit = ("percent" if label.percent else "number" for label in (chart.y, chart.x))
    return Chart(
        identifier, chart.title, _subtitle(chart, lost), chart.x.text, curves,
        unit=unit, x_unit=x_unit, log_x=chart.x.log, log_y=chart.y.log, wide=wide,
    )  # fmt: skip


def line_colors(lines: Sequence[FigureLine]) -> list[int]:
    """Series of one method share its colour and differ in dashes; those without a method take what is free."""
    keys = [plain_name(line.method or line.name) for line in lines]
    taken: dict[str, int] = {}
    for key in keys:
        color = METHOD_COLORS.get(key)
        if color is not None and color not in taken.values():
            taken.setdefault(key, color)
    uses: dict[int, int] = {}
    chosen = []
    for line, key in zip(lines, keys, strict=True):
        if key not in taken:
            free = [color for color in range(COLORS - 1) if color not in taken.values()]
            taken[key] = free[0] if free else len(taken) % (COLORS - 1)
        color, again = taken[key], 0
        if line.style in ("line", "band"):  # points and rules are told from lines by their form
            again = uses.get(color, 0)
            uses[color] = again + 1
        chosen.append(color + COLORS * again)
    return chosen


def _curve(name: str, points: Sequence[Point], style: str, color: int) -> Series | None:
    known = [point for point in points if point.x is not None]
    if not known:
        return None
    marked = style == "points" or (style == "line" and len(known) <= MARKED)
    return _series(name, known, color, marks=marked, line=style != "points")


def _rule(line: FigureLine, color: int) -> Series | None:
    point = next((point for point in line.points if point.y is not None), None)
    return _series(line.name, [point] * 2, color, rule=True) if point else None


def _series(
    name: str, points: Sequence[Point], color: int, *, marks: bool = False, line: bool = True, rule: bool = False
) -> Series:
    spread = any(point.low is not None and point.high is not None for point in points)
    return Series(
        name,
        () if rule else [point.x or 0.0 for point in points],
        [point.y for point in points],
        [point.low for point in points] if spread else (),
        [point.high for point in points] if spread else (),
        color=color,
        dashed=rule,
        marks=marks,
        line=line,
        rule=rule,
        whiskers=spread and marks,
        spread=spread,
        labels=[point.label for point in points] if any(point.label for point in points) else (),
    )


def _subtitle(chart: LinesChart, lost: int) -> str:
    x, y = (label.text + (" (logarithmic)" if label.log else "") for label in (chart.x, chart.y))
    parts = [f"{y} against {x}"]
    if any(point.low is not None for line in chart.lines for point in line.points):
        parts.append("whiskers and bands: one standard deviation over seeds")
    if lost:
        parts.append(f"{lost} point(s) at or below zero have no place on a logarithmic axis")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def draw_grid(chart: GridChart) -> Html:
    """A table whose cells are coloured by their number: it reads aloud, prints and scrolls like any table."""
    present = [value for row in chart.cells for value in row if value is not None]
    subtitle = f"{chart.value.text} by {chart.y.text} and {chart.x.text}"
    if not present:
        return no_figure(chart.title, subtitle, class_="chart wide")
    low, high = min(present), max(present)

    def cell(value: float | None) -> Html:
        if value is None:
            return tag("td", MISSING, class_="number")
        level = LEVELS if high == low else 1 + min(LEVELS - 1, int(LEVELS * (value - low) / (high - low)))
        return tag("td", number(value), class_=f"number q{level}")

    def number(value: float) -> str:
        return percent(value) if chart.value.percent else tick(value)

    corner = tag("th", fragment(chart.y.text, " \\ ", chart.x.text), scope="col")
    head = tag("tr", corner, *(tag("th", _heading(item, chart.x), scope="col") for item in chart.columns))
    body = [
        tag("tr", tag("th", _heading(name, chart.y), scope="row"), *map(cell, row))
        for name, row in zip(chart.rows, chart.cells, strict=True)
    ]
    ramp = tag("span", *(tag("span", class_=f"q{level}") for level in range(1, LEVELS + 1)), class_="ramp")
    key = tag("p", tag("span", number(low)), ramp, tag("span", number(high)), class_="key")
    return figure(
        chart.title,
        subtitle,
        scroll_table(chart.title, tag("thead", head), tag("tbody", *body), class_="heat"),
        tag("div", key, class_="keys", aria_hidden="true"),
        class_="chart wide grid-chart",
    )


def _heading(heading: float | str, label: Label) -> str:
    if isinstance(heading, str):
        return heading
    return tick(100 * heading, "\u202f%") if label.percent else tick(heading)
