"""Line charts as inline SVG, complete without a script and in print; colours are CSS classes, never values. The script
of the page adds the hover read-out and the switching of series from the data block beside each drawing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .markup import Axis, Html, data_block, figure, linear_axis, log_axis, no_figure, rungs, same, tag
from .wording import tick

WIDTH, HEIGHT = 520, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 506, 14, 246
COLORS = 8  # of the style sheet; more series than that repeat them with dashes
DASHES = ("", "7 4", "2 4", "9 3 2 3")
Values = Sequence[float | None]


@dataclass(frozen=True)
class Series:
    """One curve of a chart; None in y is a gap. low and high, if given, are drawn as a band around it."""

    name: str
    x: Sequence[float]
    y: Values
    low: Values = ()
    high: Values = ()
    color: int = 0
    dashed: bool = False
    marks: bool = False
    line: bool = True
    rule: bool = False  # a level over the whole width: x is set when the width is known
    whiskers: bool = False  # low and high as bars at each point instead of a band
    spread: bool = False  # low and high are a spread around y that a read-out should tell
    labels: Sequence[str | None] = ()  # words for single points

    @property
    def class_(self) -> str:
        return f"s{self.color % COLORS}"


@dataclass(frozen=True)
class Chart:
    """What to draw, and how its numbers read: as "percent" (values are fractions), "count" or "number"."""

    identifier: str
    title: str
    subtitle: str
    x_label: str
    series: Sequence[Series]
    unit: str = "number"
    x_unit: str = "count"
    log_x: bool = False
    log_y: bool = False
    wide: bool = False

    def levels(self) -> list[float]:
        return [value for series in self.series for value in series.y if value is not None]


def draw(chart: Chart) -> Html:
    values = _drawable(chart)
    class_ = "chart wide" if chart.wide else "chart"
    if not values:
        return no_figure(chart.title, chart.subtitle, class_=class_)
    across = _across(chart)
    # A rule goes over the whole width, whatever that turned out to be.
    drawn = [replace(series, x=[across.low, across.high]) if series.rule else series for series in chart.series]
    chart = replace(chart, series=drawn)
    up = log_axis(values, BOTTOM, TOP) if chart.log_y else _up(chart, values)
    title, text = f"{chart.identifier}-title", f"{chart.identifier}-text"
    svg = tag(
        "svg",
        tag("title", chart.title, id=title),
        tag("desc", _describe(chart), id=text),
        tag("g", *_scales(chart, across, up), class_="scales", aria_hidden="true"),
        *(_curve(series, index, across, up) for index, series in enumerate(chart.series)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_labelledby=f"{title} {text}",
    )  # fmt: skip
    plot = tag("div", svg, tag("output", class_="readout", aria_live="polite", hidden=True), class_="plot")
    data = data_block(_data(chart, across, up), "chart-data")
    return figure(chart.title, chart.subtitle, plot, _legend(chart), data, class_=class_)


def _describe(chart: Chart) -> str:
    """The chart in words: where each series starts, ends, and its range."""
    say = _speaker(chart.unit, " %")
    parts = []
    for series in chart.series:
        present = [value for value in series.y if value is not None]
        if not present:
            parts.append(f"{series.name}: no values.")
        elif min(present) == max(present):
            parts.append(f"{series.name}: {say(present[0])} throughout.")
        else:
            first, last, low, high = map(say, (present[0], present[-1], min(present), max(present)))
            parts.append(f"{series.name}: from {first} to {last}, lowest {low}, highest {high}.")
    return f"{chart.subtitle}. Horizontal axis: {chart.x_label}. " + " ".join(parts)


def scales(up: Axis, label: Callable[[float], str], below: Sequence[Html], x_label: str) -> list[Html]:
    """The numbers of the upright axis, what stands below the other, its line and its name."""
    ground = tag("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis")
    name = tag("text", x_label, x=RIGHT, y=HEIGHT - 4, class_="tick name", text_anchor="end")
    return [*rungs(up, LEFT, RIGHT, label), *below, ground, name]


def _speaker(unit: str, sign: str = "%") -> Callable[[float], str]:
    return (lambda value: tick(100 * value, sign)) if unit == "percent" else tick


def _drawable(chart: Chart) -> list[float]:
    columns = [column for series in chart.series for column in (series.y, series.low, series.high)]
    values = [value for column in columns for value in column if value is not None]
    if not chart.log_y:
        return values
    # The bottom of a band may be zero; the curves decide how far down a logarithmic axis goes.
    lowest = min((value for value in chart.levels() if value > 0), default=None)
    return [value for value in values if lowest is not None and value >= lowest]


def _across(chart: Chart) -> Axis:
    xs = [x for series in chart.series for x in series.x if not series.rule and (not chart.log_x or x > 0)]
    if not xs:
        return Axis(0, 1, LEFT, RIGHT, ())
    if chart.log_x:
        return log_axis(xs, LEFT, RIGHT)
    if same(min(xs), max(xs)):
        middle, beside = xs[0], max(1.0, abs(xs[0]) / 1000)
        return Axis(middle - beside, middle + beside, LEFT, RIGHT, (middle,))
    return linear_axis(xs, LEFT, RIGHT, count=6, whole=chart.x_unit == "count", tight=True)


def _up(chart: Chart, values: Sequence[float]) -> Axis:
    if chart.unit == "percent":
        levels = chart.levels()
        if levels and min(levels) >= 0 and max(levels) <= 1:
            # A standard deviation below a small share is no reason for an axis of shares below zero.
            values = [min(1.0, max(0.0, value)) for value in values]
        if same(min(values), max(values)):
            values = [max(0.0, min(values) - 0.01), min(1.0, max(values) + 0.01)]
    return linear_axis(values, BOTTOM, TOP, count=5, whole=chart.unit == "count")


def _scales(chart: Chart, across: Axis, up: Axis) -> list[Html]:
    say, below = _speaker(chart.x_unit), []
    for value in across.ticks:
        x = across.at(value)
        below.append(tag("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 4, class_="axis"))
        # Beside the right edge a centred label could be cut.
        place, anchor = (x, "middle") if x < RIGHT - 8 else (x + 6, "end")
        below.append(tag("text", say(value), x=place, y=BOTTOM + 20, class_="tick", text_anchor=anchor))
    return scales(up, _speaker(chart.unit), below, chart.x_label)


def _legend(chart: Chart) -> Html | None:
    if len(chart.series) < 2:
        return None
    items = []
    for index, series in enumerate(chart.series):
        plain = not series.dashed and series.color < COLORS
        form = " dot" if not series.line else "" if plain else " dashed"
        words = tag("span", class_=f"swatch{form}", aria_hidden="true"), tag("span", series.name)
        button = tag("button", *words, type="button", class_=series.class_, aria_pressed="true", data_series=index)
        items.append(tag("li", button))
    return tag("ul", *items, class_="legend", aria_label="Series; press to hide or show")


def _data(chart: Chart, across: Axis, up: Axis) -> dict[str, object]:
    def short(value: float | None) -> float | int | None:
        """Six digits that count, enough for a read-out, and whole numbers whole: budgets must read exactly."""
        return value if value is None else int(value) if value == int(value) else float(f"{value:.6g}")

    def line(series: Series) -> dict[str, object]:
        columns = {"x": series.x, "y": series.y, "low": series.low, "high": series.high}
        return {
            "name": series.name, "color": series.color % COLORS, "rule": series.dashed or series.rule,
            "spread": series.spread, "labels": list(series.labels),
            **{name: list(map(short, values)) for name, values in columns.items()},
        }  # fmt: skip

    x, y = ([axis.low, axis.high, axis.start, axis.end, int(axis.log)] for axis in (across, up))
    series = [line(series) for series in chart.series]
    return {"x": x, "y": y, "label": chart.x_label, "unit": chart.unit, "xUnit": chart.x_unit, "series": series}


def _curve(series: Series, index: int, across: Axis, up: Axis) -> Html:
    spread = _whiskers(series, across, up) if series.whiskers else _band(series, across, up)
    parts = [tag("path", d=spread, class_="whisker" if series.whiskers else "band")] if spread else []
    points = zip(series.x, series.y, strict=True)
    places = [None if y is None or (up.log and y <= 0) else (across.at(x), up.at(y)) for x, y in points]
    if series.line:
        dash = "5 5" if series.dashed else DASHES[series.color // COLORS % len(DASHES)]
        parts.append(tag("path", d=_path(places), class_="line", stroke_dasharray=dash or None))
    if series.marks:
        class_ = "mark" if series.line else "mark solid"
        parts += [tag("circle", cx=place[0], cy=place[1], r=3.2, class_=class_) for place in places if place]
    kind = " dashed" if series.dashed else ""
    return tag("g", *parts, class_=f"series {series.class_}{kind}", data_series=index)


def _path(places: Sequence[tuple[float, float] | None]) -> str:
    """Broken at gaps; a point alone between two gaps is a dot (a line of no length with round ends)."""
    pairs = zip([None, *places], places, strict=False)
    return "".join(f"L{at[0]} {at[1]}" if before else f"M{at[0]} {at[1]}h0" for before, at in pairs if at)


def _band(series: Series, across: Axis, up: Axis) -> str:
    """Not where low and high are one, nor as a few shards: a logarithmic axis cannot show a low of zero."""
    if not series.low or not series.high or list(series.low) == list(series.high):
        return ""
    if up.log and 2 * sum(low is not None and low > 0 for low in series.low) < len(series.low):
        return ""
    parts: list[str] = []
    stretch: list[tuple[float, float, float]] = []
    for x, low, high in [*zip(series.x, series.low, series.high, strict=True), (0.0, None, None)]:
        if low is not None and high is not None and not (up.log and low <= 0):
            stretch.append((across.at(x), up.at(low), up.at(high)))
        elif stretch:
            tops = [f"{x} {top}" for x, _, top in stretch]
            parts.append("M" + "L".join(tops + [f"{x} {bottom}" for x, bottom, _ in reversed(stretch)]) + "Z")
            stretch = []
    return "".join(parts)


def _whiskers(series: Series, across: Axis, up: Axis) -> str:
    parts = []
    for x, low, high in zip(series.x, series.low, series.high, strict=True):
        if low is not None and high is not None and high > low and not (up.log and high <= 0):
            at, bottom, top = across.at(x), up.at(low), up.at(high)
            left = round(at - 4, 1)
            parts.append(f"M{at} {bottom}V{top}M{left} {top}h8M{left} {bottom}h8")
    return "".join(parts)
