"""A picture of the result: speed beside the goals, and dense against ours at rising density. One SVG."""

from __future__ import annotations

from collections.abc import Sequence

from wirebound_lab.bench.results import Goal, Section
from wirebound_lab.bench.text import amount
from wirebound_lab.report.markup import Html, tag
from wirebound_lab.report.svg import log_axis, picture, rungs, text

WIDTH, LEFT, RIGHT = 960, 470, 900
_ROW, _TOP = 24, 56
_CURVE_HEIGHT = 240
_STYLE = """
.bar { fill: #2f6f9f; } .missed { fill: #c07a1a; }
.wanted { stroke: #1f2328; stroke-width: 2.5; }
.one { stroke: #59636e; stroke-dasharray: 4 4; }
.curve { fill: none; stroke: #2f6f9f; stroke-width: 2.5; } .dot { fill: #2f6f9f; }
@media (prefers-color-scheme: dark) {
  .bar { fill: #5fa3d6; } .missed { fill: #e0a34a; } .wanted { stroke: #ffffff; }
  .one { stroke: #9aa5b1; } .curve { stroke: #5fa3d6; } .dot { fill: #5fa3d6; }
}
"""


def draw(sections: Sequence[Section]) -> str | None:
    """The picture as a file's text, or None where nothing was measured that it shows."""
    goals = [g for section in sections for g in section.goals if g.unit == "×" and not g.at_most]
    found = [m.numbers for section in sections for table in section.tables for m in table.measurements]
    curve = [(numbers["density"], numbers["dense ÷ kernel"]) for numbers in found if "density" in numbers]
    parts: list[Html] = []
    height = 0
    if goals:
        parts += _bars(goals)
        height = _TOP + _ROW * len(goals) + 36
    if curve:
        parts += _curve(curve, height)
        height += _CURVE_HEIGHT + 70
    title = "wirebound bench: what was reached beside the goals"
    return picture(title, parts, WIDTH, height, _STYLE) if parts else None


def _bars(goals: Sequence[Goal]) -> list[Html]:
    """A bar for each ratio, and a mark where its goal is."""
    across = log_axis([1.0, *(value for goal in goals for value in (goal.wanted, goal.reached))], LEFT, RIGHT)
    bottom = _TOP + _ROW * len(goals)
    parts = [
        text(12, 24, "How many times faster, beside the goal", "title", None),
        text(12, 42, "bar: reached (amber: goal missed); upright mark: goal; logarithmic", anchor=None),
    ]
    for value in across.ticks:
        x = across.at(value)
        parts.append(tag("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="grid"))
        parts.append(text(x, bottom + 16, f"{value:g}×"))
    for number, goal in enumerate(goals):
        y, end, mark = _TOP + _ROW * number, across.place(goal.reached), across.at(goal.wanted)
        width, class_ = round(max(1.0, end - LEFT), 1), "bar" if goal.met else "missed"
        parts += [
            text(LEFT - 10, y + 16, goal.subject, None, "end"),
            tag("rect", x=LEFT, y=y + 5, width=width, height=_ROW - 10, class_=class_),
            tag("line", x1=mark, x2=mark, y1=y + 2, y2=y + _ROW - 2, class_="wanted"),
            text(max(end, mark) + 6, y + 16, amount(goal.reached, goal.unit), anchor=None),
        ]
    return parts


def _curve(points: Sequence[tuple[float, float]], top: int) -> list[Html]:
    left, head, foot = 60, top + 56, top + 26 + _CURVE_HEIGHT
    across = log_axis([density for density, _ in points], left, RIGHT)
    up = log_axis([1.0, *(ratio for _, ratio in points)], foot, head)
    places = [(across.at(density), up.at(ratio)) for density, ratio in points]
    parts = [
        text(12, top + 24, "Dense ÷ ours at rising density", "title", None),
        text(12, top + 42, "1024→1024, batch 32, one layer's work; below the broken line dense is faster", anchor=None),
        *rungs(up, left, RIGHT, lambda value: f"{value:g}×"),
        tag("line", x1=left, x2=RIGHT, y1=up.at(1), y2=up.at(1), class_="one"),
        *(text(across.place(value), foot + 18, f"{100 * value:g} %") for value in across.ticks),
        tag("path", d="M" + "L".join(f"{x} {y}" for x, y in places), class_="curve"),
    ]
    for (x, y), (_, ratio) in zip(places, points, strict=True):
        # A centred label of the first point would run into the axis.
        anchor = "start" if x < left + 20 else "middle"
        parts += [tag("circle", cx=x, cy=y, r=3.5, class_="dot"), text(x, y - 9, amount(ratio, "×"), anchor=anchor)]
    return parts
