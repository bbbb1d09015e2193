"""Line charts as inline SVG: complete without a script, in print and in both colour schemes.

Colours are CSS classes, never values, so one drawing serves light, dark and paper. The script of the
page adds the hover read-out and the switching of series from the data block beside each drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .markup import Html, data_block, fragment, tag
from .scale import Axis, linear_axis, log_axis, same
from .series import Series
from .strokes import COLORS, curve, rounded
from .wording import tick

WIDTH, HEIGHT = 520, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 506, 14, 246


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


def draw(chart: Chart) -> Html:
    """A figure: caption, SVG, legend of switches, data for the read-out; or a note that there is nothing."""
    values = _drawable(chart)
    caption = tag("figcaption", tag("h4", chart.title), tag("p", chart.subtitle))
    class_ = "chart wide" if chart.wide else "chart"
    if not values:
        return tag(
            "figure", caption, tag("p", "Nothing was recorded for this chart.", class_="empty"), class_=class_
        )
    across = _across(chart)
    # A rule goes over the whole width, whatever that turned out to be.
    drawn = [replace(series, x=[across.low, across.high]) if series.rule else series for series in chart.series]
    chart = replace(chart, series=drawn)
    up = log_axis(values, BOTTOM, TOP) if chart.log_y else _up(chart, values)
    title, text = f"{chart.identifier}-title", f"{chart.identifier}-text"
    svg = tag(
        "svg",
        tag("title", chart.title, id=title),
        tag("desc", describe(chart), id=text),
        _grid(chart, across, up),
        *(curve(series, index, across, up) for index, series in enumerate(chart.series)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{title} {text}",
    )
    readout = tag("output", class_="readout", aria_live="polite", hidden=True)
    plot = tag("div", svg, readout, class_="plot")
    return tag(
        "figure",
        caption,
        plot,
        _legend(chart),
        data_block(_data(chart, across, up), "chart-data"),
        class_=class_,
    )


def describe(chart: Chart) -> str:
    """The chart in words: where each series starts, ends, and its range."""
    parts = []
    for series in chart.series:
        present = [value for value in series.y if value is not None]
        if not present:
            parts.append(f"{series.name}: no values.")
        elif min(present) == max(present):
            parts.append(f"{series.name}: {_say(present[0], chart.unit)} throughout.")
        else:
            low, high = _say(min(present), chart.unit), _say(max(present), chart.unit)
            first, last = _say(present[0], chart.unit), _say(present[-1], chart.unit)
            parts.append(f"{series.name}: from {first} to {last}, lowest {low}, highest {high}.")
    return f"{chart.subtitle}. Horizontal axis: {chart.x_label}. " + " ".join(parts)


def _say(value: float, unit: str) -> str:
    return tick(100 * value, " %") if unit == "percent" else tick(value)


def _drawable(chart: Chart) -> list[float]:
    values = []
    for series in chart.series:
        for column in (series.y, series.low, series.high):
            values += [value for value in column if value is not None]
    if chart.log_y:
        # The bottom of a band may be zero; the curves decide how far down a logarithmic axis goes.
        curves = [value for series in chart.series for value in series.y if value is not None and value > 0]
        return [value for value in values if curves and value >= min(curves)]
    return values


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
        means = [value for series in chart.series for value in series.y if value is not None]
        if means and min(means) >= 0 and max(means) <= 1:
            # A standard deviation below a small share is no reason for an axis of shares below zero.
            values = [min(1.0, max(0.0, value)) for value in values]
        low, high = min(values), max(values)
        if same(low, high):
            values = [max(0.0, low - 0.01), min(1.0, high + 0.01)]
    return linear_axis(values, BOTTOM, TOP, count=5, whole=chart.unit == "count")


def _grid(chart: Chart, across: Axis, up: Axis) -> Html:
    parts: list[Html] = []
    for value in up.ticks:
        y = rounded(up.place(value))
        parts.append(tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid"))
        label = tick(100 * value, "%") if chart.unit == "percent" else tick(value)
        parts.append(tag("text", label, x=LEFT - 8, y=y, dy="0.34em", class_="tick", text_anchor="end"))
    for value in across.ticks:
        x = rounded(across.place(value))
        parts.append(tag("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 4, class_="axis"))
        label = tick(100 * value, "%") if chart.x_unit == "percent" else tick(value)
        # Beside the right edge a centred label could be cut.
        anchor = "middle" if x < RIGHT - 8 else "end"
        parts.append(
            tag(
                "text",
                label,
                x=x if anchor == "middle" else x + 6,
                y=BOTTOM + 20,
                class_="tick",
                text_anchor=anchor,
            )
        )
    parts.append(tag("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis"))
    parts.append(tag("text", chart.x_label, x=RIGHT, y=HEIGHT - 4, class_="tick name", text_anchor="end"))
    return tag("g", *parts, class_="scales", aria_hidden="true")


def _legend(chart: Chart) -> Html | None:
    if len(chart.series) < 2:
        return None
    items = [
        tag(
            "li",
            tag(
                "button",
                tag(
                    "span",
                    class_=_swatch(series),
                    aria_hidden="true",
                ),
                tag("span", series.name),
                type="button",
                class_=f"s{series.color % COLORS}",
                aria_pressed="true",
                data_series=index,
            ),
        )
        for index, series in enumerate(chart.series)
    ]
    return tag("ul", *items, class_="legend", aria_label="Series; press to hide or show")


def _swatch(series: Series) -> str:
    if not series.line:
        return "swatch dot"
    return "swatch dashed" if series.dashed or series.color >= COLORS else "swatch"


def _data(chart: Chart, across: Axis, up: Axis) -> dict[str, object]:
    def axis(scale: Axis) -> list[float | int]:
        return [scale.low, scale.high, scale.start, scale.end, int(scale.log)]

    return {
        "x": axis(across),
        "y": axis(up),
        "label": chart.x_label,
        "unit": chart.unit,
        "xUnit": chart.x_unit,
        "series": [
            {
                "name": series.name,
                "color": series.color % COLORS,
                "rule": series.dashed or series.rule,
                "spread": series.spread,
                "labels": list(series.labels),
                "x": [_short(value) for value in series.x],
                "y": [_short(value) for value in series.y],
                "low": [_short(value) for value in series.low],
                "high": [_short(value) for value in series.high],
            }
            for series in chart.series
        ],
    }


def _short(value: float | None) -> float | int | None:
    """Six digits that count, enough for a read-out, and whole numbers whole: budgets must read exactly."""
    if value is None:
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


def nothing(title: str, subtitle: str, reason: str) -> Html:
    """A figure that says why there is no chart."""
    caption = fragment(tag("h4", title), tag("p", subtitle))
    return tag("figure", tag("figcaption", caption), tag("p", reason, class_="empty"), class_="chart")
