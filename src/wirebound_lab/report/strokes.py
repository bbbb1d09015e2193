"""What a series looks like on a chart: paths and marks in SVG."""

from __future__ import annotations

from collections.abc import Sequence

from .markup import Html, tag
from .scale import Axis
from .series import Series, Values

COLORS = 8  # of the style sheet; more series than that repeat them with dashes
DASHES = ("", "7 4", "2 4", "9 3 2 3")


def curve(series: Series, index: int, across: Axis, up: Axis) -> Html:
    """One series: its band, its line, whiskers and marks."""
    parts: list[Html | None] = []
    if series.whiskers:
        parts.append(_whiskers(series, across, up))
    elif _has_band(series, up):
        parts.append(tag("path", d=_band(series, across, up), class_="band"))
    dash = "5 5" if series.dashed else DASHES[series.color // COLORS % len(DASHES)]
    if series.line:
        parts.append(
            tag("path", d=_path(series.x, series.y, across, up), class_="line", stroke_dasharray=dash or None)
        )
    if series.marks:
        parts += [
            tag(
                "circle",
                cx=rounded(across.place(x)),
                cy=rounded(up.place(y)),
                r=3.2,
                class_="mark" if series.line else "mark solid",
            )
            for x, y in zip(series.x, series.y, strict=True)
            if y is not None and not (up.log and y <= 0)
        ]
    kind = " dashed" if series.dashed else ""
    return tag("g", *parts, class_=f"series s{series.color % COLORS}{kind}", data_series=index)


def _has_band(series: Series, up: Axis) -> bool:
    """Not where low and high are one, nor as a few shards: a logarithmic axis cannot show a low of zero."""
    if not series.low or not series.high or list(series.low) == list(series.high):
        return False
    return not up.log or 2 * sum(low is not None and low > 0 for low in series.low) >= len(series.low)


def _path(xs: Sequence[float], ys: Values, across: Axis, up: Axis) -> str:
    """Broken at gaps; a point alone between two gaps is a dot (a line of no length with round ends)."""
    parts: list[str] = []
    pen_down = False
    for x, y in zip(xs, ys, strict=True):
        if y is None or (up.log and y <= 0):
            pen_down = False
            continue
        point = f"{rounded(across.place(x))} {rounded(up.place(y))}"
        parts.append(f"L{point}" if pen_down else f"M{point}h0")
        pen_down = True
    return "".join(parts)


def _band(series: Series, across: Axis, up: Axis) -> str:
    parts: list[str] = []
    stretch: list[tuple[float, float, float]] = []
    for x, low, high in [*zip(series.x, series.low, series.high, strict=True), (0.0, None, None)]:
        if low is not None and high is not None and not (up.log and low <= 0):
            stretch.append((rounded(across.place(x)), rounded(up.place(low)), rounded(up.place(high))))
        elif stretch:
            outline = [f"{x} {top}" for x, _, top in stretch] + [
                f"{x} {bottom}" for x, bottom, _ in reversed(stretch)
            ]
            parts.append("M" + "L".join(outline) + "Z")
            stretch = []
    return "".join(parts)


def _whiskers(series: Series, across: Axis, up: Axis) -> Html | None:
    """From low to high at each point, with short bars at the ends."""
    parts = []
    for x, low, high in zip(series.x, series.low, series.high, strict=True):
        if low is not None and high is not None and high > low and not (up.log and high <= 0):
            at, bottom, top = rounded(across.place(x)), rounded(up.place(low)), rounded(up.place(high))
            parts.append(f"M{at} {bottom}V{top}M{rounded(at - 4)} {top}h8" + f"M{rounded(at - 4)} {bottom}h8")
    return tag("path", d="".join(parts), class_="whisker") if parts else None


def rounded(value: float) -> float:
    """A tenth of a chart unit is less than a pixel."""
    return round(value, 1)
