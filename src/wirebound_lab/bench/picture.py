"""A picture of the result: speed beside the goals, and dense against ours at rising density. One SVG."""

from __future__ import annotations

from collections.abc import Sequence

from wirebound_lab.bench.results import Goal, Section
from wirebound_lab.bench.text import amount
from wirebound_lab.report.markup import Html, tag
from wirebound_lab.report.scale import Axis, log_axis

WIDTH, LEFT, RIGHT = 960, 470, 900
_ROW, _TOP = 24, 56
_CURVE_HEIGHT = 240
_STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; }
.quiet { fill: #59636e; font-size: 12px; }
.bar { fill: #2f6f9f; } .missed { fill: #c07a1a; }
.wanted { stroke: #1f2328; stroke-width: 2.5; }
.grid { stroke: #d9dee3; } .one { stroke: #59636e; stroke-dasharray: 4 4; }
.curve { fill: none; stroke: #2f6f9f; stroke-width: 2.5; } .dot { fill: #2f6f9f; }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d; fill: #e6eaee; } .quiet { fill: #9aa5b1; }
  .bar { fill: #5fa3d6; } .missed { fill: #e0a34a; } .wanted { stroke: #ffffff; }
  .grid { stroke: #2c343d; } .one { stroke: #9aa5b1; } .curve { stroke: #5fa3d6; } .dot { fill: #5fa3d6; }
}
"""


def draw(sections: Sequence[Section]) -> str | None:
    """The picture as a file's text, or None where nothing was measured that it shows."""
    goals = [g for section in sections for g in section.goals if g.unit == "×" and not g.at_most]
    curve = _density(sections)
    parts: list[Html] = []
    height = 0
    if goals:
        part, height = _bars(goals)
        parts.append(part)
    if curve:
        parts.append(_curve(curve, height))
        height += _CURVE_HEIGHT + 70
    if not parts:
        return None
    svg = tag(
        "svg",
        tag("title", "wirebound bench: what was reached beside the goals"),
        tag("style", Html(_STYLE)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        width=WIDTH,
        height=height,
        role="img",
    )
    return svg + "\n"


def _text(x: float, y: float, text: str, class_: str | None = None, anchor: str | None = None) -> Html:
    return tag("text", text, x=round(x, 1), y=round(y, 1), class_=class_, text_anchor=anchor)


def _bars(goals: Sequence[Goal]) -> tuple[Html, int]:
    """A bar for each ratio, and a mark where its goal is."""
    values = [value for goal in goals for value in (goal.wanted, goal.reached)]
    across = log_axis([1.0, *values], LEFT, RIGHT)
    bottom = _TOP + _ROW * len(goals)
    parts = [
        _text(12, 24, "How many times faster, beside the goal", "title"),
        _text(12, 42, "bar: reached (amber: goal missed); upright mark: goal; logarithmic", "quiet"),
    ]
    for value in across.ticks:
        x = round(across.place(value), 1)
        parts.append(tag("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="grid"))
        parts.append(_text(x, bottom + 16, f"{value:g}×", "quiet", "middle"))
    for number, goal in enumerate(goals):
        y = _TOP + _ROW * number
        end, mark = across.place(goal.reached), round(across.place(goal.wanted), 1)
        parts += [
            _text(LEFT - 10, y + 16, goal.subject, None, "end"),
            tag(
                "rect",
                x=LEFT,
                y=y + 5,
                width=round(max(1.0, end - LEFT), 1),
                height=_ROW - 10,
                class_="bar" if goal.met else "missed",
            ),
            tag("line", x1=mark, x2=mark, y1=y + 2, y2=y + _ROW - 2, class_="wanted"),
            _text(max(end, mark) + 6, y + 16, amount(goal.reached, goal.unit), "quiet"),
        ]
    return tag("g", *parts), bottom + 36


def _density(sections: Sequence[Section]) -> list[tuple[float, float]]:
    """(density, dense ÷ ours) of the sweep, if there is one."""
    return [
        (m.numbers["density"], m.numbers["dense ÷ kernel"])
        for section in sections
        for table in section.tables
        for m in table.measurements
        if "density" in m.numbers
    ]


def _curve(points: Sequence[tuple[float, float]], top: int) -> Html:
    left, right = 60, RIGHT
    head, foot = top + 56, top + 56 + _CURVE_HEIGHT - 30
    across = log_axis([density for density, _ in points], left, right)
    up = log_axis([1.0, *(ratio for _, ratio in points)], foot, head)
    parts = [
        _text(12, top + 24, "Dense ÷ ours at rising density", "title"),
        _text(
            12,
            top + 42,
            "1024→1024, batch 32, one layer's work; below the broken line dense is faster",
            "quiet",
        ),
    ]
    for value in up.ticks:
        y = round(up.place(value), 1)
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="one" if value == 1 else "grid"))
        parts.append(_text(left - 8, y + 4, f"{value:g}×", "quiet", "end"))
    for value in across.ticks:
        parts.append(_text(across.place(value), foot + 18, f"{100 * value:g} %", "quiet", "middle"))
    parts.append(tag("path", d=_line(points, across, up), class_="curve"))
    for density, ratio in points:
        x, y = round(across.place(density), 1), round(up.place(ratio), 1)
        parts.append(tag("circle", cx=x, cy=y, r=3.5, class_="dot"))
        # A centred label of the first point would run into the axis.
        anchor = "start" if x < left + 20 else "middle"
        parts.append(_text(x, y - 9, amount(ratio, "×"), "quiet", anchor))
    return tag("g", *parts)


def _line(points: Sequence[tuple[float, float]], across: Axis, up: Axis) -> str:
    return "M" + "L".join(f"{across.place(x):.1f} {up.place(y):.1f}" for x, y in points)
