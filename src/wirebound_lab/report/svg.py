"""What all drawings share: axes with their ticks, lines across at the ticks, texts, and a picture that is a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .markup import Html, tag


@dataclass(frozen=True)
class Axis:
    """From low..high to start..end (in chart units), linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        if self.log:
            low, value = math.log(self.low), math.log(max(value, self.low))
            part = (value - low) / (math.log(self.high) - low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    def at(self, value: float) -> float:
        """The place to a tenth of a chart unit, which is less than a pixel."""
        return round(self.place(value), 1)


def linear_axis(
    values: Sequence[float], start: float, end: float, *, count: int = 5, whole: bool = False, tight: bool = False
) -> Axis:
    """An axis that ends on ticks, or on the data if tight. Equal values are seen against zero."""
    low, high = min(values), max(values)
    if same(low, high):
        low, high = min(0.0, 1.25 * low), max(0.0, 1.25 * high)
        if low == high:
            high = 1.0
    step = _nice_step((high - low) / count)
    if whole:
        step = max(1.0, math.ceil(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [round(index * step, 12) for index in range(first, last + 1)]
    if tight:
        slack = 1e-9 * (high - low)
        return Axis(low, high, start, end, tuple(tick for tick in ticks if low - slack <= tick <= high + slack))
    return Axis(ticks[0], ticks[-1], start, end, tuple(ticks))


def log_axis(values: Sequence[float], start: float, end: float, *, count: int = 7) -> Axis:
    """A logarithmic axis over the values above zero; there must be one."""
    above = [value for value in values if value > 0]
    low, high = min(above), max(above)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    grid = [mantissa * 10.0**power for power in powers for mantissa in (1, 2, 5)]
    first = max(index for index, value in enumerate(grid) if value <= low * (1 + 1e-9))
    last = min(index for index, value in enumerate(grid) if value >= high * (1 - 1e-9))
    if first == last:
        first, last = first - 1, last + 1
    ticks = grid[first : last + 1]
    if len(ticks) > count:
        # Too many for 1, 2 and 5: only powers of ten, every second or third of them if need be.
        tens = [value for index, value in enumerate(grid) if index % 3 == 0 and first <= index <= last]
        ticks = tens[:: math.ceil(len(tens) / count)]
    return Axis(grid[first], grid[last], start, end, tuple(ticks), log=True)


def same(low: float, high: float) -> bool:
    """Too close for ticks between them: what is left of their difference would be rounding."""
    return high - low <= 1e-9 * max(abs(low), abs(high))


def _nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, not below rough."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1, 2, 5) if rough <= m * power * (1 + 1e-9)), 10 * power)


def text(x: float, y: float, words: str, class_: str | None = "tick", anchor: str | None = "middle") -> Html:
    return tag("text", words, x=round(x, 1), y=round(y, 1), class_=class_, text_anchor=anchor)


def rungs(up: Axis, left: float, right: float, label: Callable[[float], str]) -> list[Html]:
    """A line across at each tick of an upright axis, and its number at the left."""
    parts = []
    for value in up.ticks:
        y = up.at(value)
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", label(value), x=left - 8, y=y, dy="0.34em", class_="tick", text_anchor="end"))
    return parts


_STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; } .tick { fill: #59636e; font-size: 12px; } .grid { stroke: #d9dee3; }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d; fill: #e6eaee; } .tick { fill: #9aa5b1; } .grid { stroke: #2c343d; }
}
"""


def picture(title: str, parts: Sequence[Html], width: int, height: int, style: str) -> str:
    """An SVG file of its own, in light and dark; `style` has the colours of what only this picture has."""
    head = tag("title", title), tag("style", Html(_STYLE + style.lstrip()))
    name, box = "http://www.w3.org/2000/svg", f"0 0 {width} {height}"
    return tag("svg", *head, *parts, xmlns=name, viewBox=box, width=width, height=height, role="img") + "\n"
