"""The figures of an experiment: curves with their spread, and grids of numbers in colour."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Chart, draw, nothing
from .experiment import Experiment, GridChart, Label, Line, LinesChart, Point, UnknownChart
from .heatmap import LEVELS
from .markup import Child, Html, fragment, tag
from .series import Series
from .strokes import COLORS
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
    return tag(
        "div",
        *(_draw(chart, f"{identifier}-chart-{index}", wide) for index, chart in enumerate(charts, 1)),
        class_="charts",
    )


def _draw(chart: LinesChart | GridChart | UnknownChart, identifier: str, wide: bool) -> Html:
    if isinstance(chart, GridChart):
        return draw_grid(chart)
    if isinstance(chart, UnknownChart):
        return nothing(chart.title, "", f"This version of the report cannot draw charts of the kind {chart.kind!r}.")
    return draw(lines_chart(chart, identifier, wide))


def lines_chart(chart: LinesChart, identifier: str, wide: bool = False) -> Chart:
    """The chart for drawing; points that a logarithmic axis has no place for are left out, and counted."""
    colors = line_colors(chart.lines)
    lost = 0
    curves = []
    for line, color in zip(chart.lines, colors, strict=True):
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
    return Chart(
        identifier,
        chart.title,
        _subtitle(chart, lost),
        chart.x.text,
        curves,
        unit="percent" if chart.y.percent else "number",
        x_unit="percent" if chart.x.percent else "number",
        log_x=chart.x.log,
        log_y=chart.y.log,
        wide=wide,
    )


def line_colors(lines: Sequence[Line]) -> list[int]:
    """Series of one method share its colour and differ in dashes; those without a method take what is free."""
    taken: dict[str, int] = {}
    uses: dict[int, int] = {}
    for line in lines:
        method = plain_name(line.method or line.name)
        color = METHOD_COLORS.get(method)
        if color is not None and color not in taken.values():
            taken.setdefault(method, color)
    chosen = []
    for line in lines:
        key = plain_name(line.method or line.name)
        if key not in taken:
            free = [color for color in range(COLORS - 1) if color not in taken.values()]
            taken[key] = free[0] if free else len(taken) % (COLORS - 1)
        color = taken[key]
        # Points and rules are told from lines by their form.
        again = uses.get(color, 0) if line.style in ("line", "band") else 0
        uses[color] = again + 1 if line.style in ("line", "band") else uses.get(color, 0)
        chosen.append(color + COLORS * again)
    return chosen


def _curve(name: str, points: Sequence[Point], style: str, color: int) -> Series | None:
    known = [point for point in points if point.x is not None]
    if not known:
        return None
    has_spread = any(point.low is not None and point.high is not None for point in known)
    marked = style == "points" or (style == "line" and len(known) <= MARKED)
    return Series(
        name,
        [point.x or 0.0 for point in known],
        [point.y for point in known],
        [point.low for point in known] if has_spread else (),
        [point.high for point in known] if has_spread else (),
        color=color,
        marks=marked,
        line=style != "points",
        whiskers=has_spread and marked,
        spread=has_spread,
        labels=[point.label for point in known] if any(point.label for point in known) else (),
    )


def _rule(line: Line, color: int) -> Series | None:
    point = next((point for point in line.points if point.y is not None), None)
    if point is None:
        return None
    has_spread = point.low is not None and point.high is not None
    return Series(
        line.name,
        (),
        [point.y] * 2,
        [point.low] * 2 if has_spread else (),
        [point.high] * 2 if has_spread else (),
        color=color,
        dashed=True,
        rule=True,
        spread=has_spread,
        labels=[point.label] * 2 if point.label else (),
    )


def _subtitle(chart: LinesChart, lost: int) -> str:
    def axis(label: Label) -> str:
        return label.text + (" (logarithmic)" if label.log else "")

    parts = [f"{axis(chart.y)} against {axis(chart.x)}"]
    if any(point.low is not None for line in chart.lines for point in line.points):
        parts.append("whiskers and bands: one standard deviation over seeds")
    if lost:
        parts.append(f"{lost} point(s) at or below zero have no place on a logarithmic axis")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def draw_grid(chart: GridChart) -> Html:
    """A table whose cells are coloured by their number: it reads aloud, prints and scrolls like any table."""
    present = [value for row in chart.cells for value in row if value is not None]
    caption = tag(
        "figcaption", tag("h4", chart.title), tag("p", f"{chart.value.text} by {chart.y.text} and {chart.x.text}")
    )
    if not present:
        return tag(
            "figure", caption, tag("p", "Nothing was recorded for this chart.", class_="empty"), class_="chart wide"
        )
    low, high = min(present), max(present)
    corner = fragment(chart.y.text, " \\ ", chart.x.text)
    head = tag(
        "tr", tag("th", corner, scope="col"), *(tag("th", _say(item, chart.x), scope="col") for item in chart.columns)
    )
    body = [
        tag(
            "tr",
            tag("th", _say(name, chart.y), scope="row"),
            *(_cell(value, low, high, chart.value) for value in row),
        )
        for name, row in zip(chart.rows, chart.cells, strict=True)
    ]
    table = tag(
        "table", tag("caption", chart.title, class_="hidden"), tag("thead", head), tag("tbody", *body), class_="heat"
    )
    ramp = tag("span", *(tag("span", class_=f"q{level}") for level in range(1, LEVELS + 1)), class_="ramp")
    key = tag("p", tag("span", _number(low, chart.value)), ramp, tag("span", _number(high, chart.value)), class_="key")
    return tag(
        "figure",
        caption,
        tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=chart.title),
        tag("div", key, class_="keys", aria_hidden="true"),
        class_="chart wide grid-chart",
    )


def _cell(value: float | None, low: float, high: float, label: Label) -> Html:
    if value is None:
        return tag("td", MISSING, class_="number")
    level = LEVELS if high == low else 1 + min(LEVELS - 1, int(LEVELS * (value - low) / (high - low)))
    return tag("td", _number(value, label), class_=f"number q{level}")


def _number(value: float, label: Label) -> str:
    return percent(value) if label.percent else tick(value)


def _say(heading: float | str, label: Label) -> Child:
    if isinstance(heading, str):
        return heading
    return tick(100 * heading, "\u202f%") if label.percent else tick(heading)
