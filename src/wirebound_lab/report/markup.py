"""HTML and SVG out of Python calls, and the axes of drawings. Every child and attribute value is escaped; only an Html,
which nothing but this file makes, is inserted unchanged: a text from a run folder cannot become markup."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from .wording import MISSING

# SVG shapes close themselves; HTML's void elements must not be closed. "/>" is legal for both.
VOID = frozenset({"meta", "input", "br", "path", "rect", "line", "circle", "stop"})
_STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; } .tick { fill: #59636e; font-size: 12px; } .grid { stroke: #d9dee3; }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d; fill: #e6eaee; } .tick { fill: #9aa5b1; } .grid { stroke: #2c343d; }
}
"""


class Html(str):
    """Text that already is HTML."""

    __slots__ = ()


Child = str | int | None
Attribute = str | int | float | bool | None
Cells = Sequence[Child]


def fragment(*children: Child) -> Html:
    shown = (child for child in children if child is not None)
    return Html("".join(child if isinstance(child, Html) else escape(str(child)) for child in shown))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """One element. class_ is class, aria_label is aria-label; None and False omit an attribute."""
    opening = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            opening += f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
    return Html(f"<{opening}/>" if name in VOID else f"<{opening}>{fragment(*children)}</{name}>")


def tag_if(name: str, content: Child, /, **attributes: Attribute) -> Html | None:
    """One element, or None where there is nothing to put into it."""
    return tag(name, content, **attributes) if content else None


def data_block(value: object, class_: str) -> Html:
    """JSON for the page's script. "<" is written as an escape, so no text can end the block early."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Html(f'<script type="application/json" class="{escape(class_)}">{text}</script>')


def figure(title: str, subtitle: str, *content: Child, class_: str = "chart") -> Html:
    return tag("figure", tag("figcaption", tag("h4", title), tag("p", subtitle)), *content, class_=class_)


def no_figure(title: str, subtitle: str, reason: str = "", class_: str = "chart") -> Html:
    why = tag("p", reason or "Nothing was recorded for this chart.", class_="empty")
    return figure(title, subtitle, why, class_=class_)


def key_list(*entries: tuple[str, str]) -> Html:
    """What colours mean: the class of a swatch, and the words for it."""
    swatches = [(tag("span", class_=f"swatch {class_}", aria_hidden="true"), words) for class_, words in entries]
    return tag("ul", *(tag("li", swatch, tag("span", words)) for swatch, words in swatches), class_="key-list")


def scroll_table(name: str, *parts: Html | None, frame: str = "scroll", **attributes: Attribute) -> Html:
    """A table with a hidden caption that scrolls by itself when it is wider than the page."""
    table = tag("table", tag("caption", name, class_="hidden"), *parts, **attributes)
    return tag("div", table, class_=frame, tabindex=0, role="region", aria_label=name)


def table(name: str, head: Cells, rows: Sequence[Cells], *, texts: Collection[int] = (0,), foot: Cells = ()) -> Html:
    """A table in which the columns `texts` hold words, not numbers."""
    classes = [None if index in texts else "number" for index in range(len(head))]

    def line(cells: Cells) -> Html:
        rest = [tag("td", cell, class_=class_) for cell, class_ in zip(cells[1:], classes[1:], strict=True)]
        return tag("tr", tag("th", cells[0], scope="row"), *rest)

    heads = [tag("th", cell, scope="col", class_=class_) for cell, class_ in zip(head, classes, strict=True)]
    body = tag("tbody", *map(line, rows))
    return scroll_table(name, tag("thead", tag("tr", *heads)), body, tag("tfoot", line(foot)) if foot else None)


def settings(name: str, values: Mapping[str, Any]) -> Html | None:
    """A definition list of plain settings; what is nested is shown as JSON."""
    if not values:
        return None
    items = [tag("div", tag("dt", key), tag("dd", _plain(value))) for key, value in sorted(values.items())]
    return fragment(tag_if("h4", name), tag("dl", *items, class_="settings"))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return MISSING if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Axis(NamedTuple):
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


def picture(title: str, parts: Sequence[Html], width: int, height: int, style: str) -> str:
    """An SVG file of its own, in light and dark; `style` has the colours of what only this picture has."""
    head = tag("title", title), tag("style", Html(_STYLE + style.lstrip()))
    name, box = "http://www.w3.org/2000/svg", f"0 0 {width} {height}"
    return tag("svg", *head, *parts, xmlns=name, viewBox=box, width=width, height=height, role="img") + "\n"
