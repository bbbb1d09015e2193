"""How results are shown: the same rows on the terminal and in Markdown, and one SVG picture."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table as Grid

from ..report.markup import Html, log_axis, picture, rungs, tag, text
from ..tables import markdown_table
from .contest import Goal, Section, Table

_WIDE = 140
WIDTH, LEFT, RIGHT = 960, 470, 900
_ROW, _TOP = 24, 56
_CURVE_HEIGHT = 240
_STYLE = """
.bar { fill: #2f6f9f; } .missed { fill: #c07a1a; }
.wanted { stroke: #1f2328; stroke-width: 2.5; }
.one { stroke: #59636e; stroke-dasharray: 4 4; }
.curve { fill: none; stroke-width: 2.5; }
.c0 { stroke: #2f6f9f; } .c1 { stroke: #7fb0d6; } .c2 { stroke: #c07a1a; } .c3 { stroke: #4f8f4f; }
@media (prefers-color-scheme: dark) {
  .bar { fill: #5fa3d6; } .missed { fill: #e0a34a; } .wanted { stroke: #ffffff; }
  .one { stroke: #9aa5b1; }
}
"""
GOAL_HEAD = ["goal", "wanted", "reached", "met"]


def seconds(value: float) -> str:
    """Three digits and a unit: 12.3 µs."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= size:
            return f"{digits(value / size)} {unit}"
    return f"{digits(value * 1e9)} ns"


def digits(value: float) -> str:
    """Three digits that count, whole numbers whole."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    places = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{places}f}" if abs(value) >= 0.1 else f"{value:.2g}"


def amount(value: float, unit: str) -> str:
    return f"{digits(value)}×" if unit == "×" else f"{digits(value)} {unit}"


def rows(table: Table) -> list[list[str]]:
    """A head with the workloads, then a row for each contender, each density and each number."""
    found = table.measurements
    times = [{name: seconds(timing.best) for name, timing in m.times.items()} for m in found]
    curves = [{f"dense ÷ ours at {density:g} %": digits(ratio) for density, ratio in m.curve.items()} for m in found]
    numbers = [{name: digits(value) for name, value in m.numbers.items()} for m in found]
    return [["", *(m.workload for m in found)], *_lines(times), *_lines(curves), *_lines(numbers)]


def _lines(columns: Sequence[Mapping[str, str]]) -> list[list[str]]:
    names = dict.fromkeys(name for column in columns for name in column)
    return [[name, *(column.get(name, "") for column in columns)] for name in names]


def goal_row(goal: Goal) -> list[str]:
    """Subject, wanted, reached, yes or no."""
    wanted, reached = (amount(value, goal.unit) for value in (goal.wanted, goal.reached))
    return [goal.subject, f"{'≤' if goal.at_most else '≥'} {wanted}", reached, "yes" if goal.met else "no"]


def markdown(sections: Sequence[Section], about: dict[str, object]) -> str:
    kind = about["kind"]
    facts = [f"{name} {value}" for name, value in about.items() if value is not None and name not in ("kind", "warning")]
    parts = [f"# Benchmark, {kind}", ", ".join(facts) + "."]
    parts.append("Times are the best of many samples taken in turns; ratios are of these.")
    if about.get("warning"):
        parts.append(f"**{about['warning']}**")
    goals = [goal_row(goal) for section in sections for goal in section.goals]
    if goals:
        parts += [f"## Goals ({kind})", markdown_table(GOAL_HEAD, goals, range(1, 4))]
    for section in sections:
        parts.append(f"## {section.title} ({kind})")  # several kinds may be on one page
        for table in section.tables:
            head, *body = rows(table)
            parts += [f"### {table.title}", markdown_table(head, body, range(1, len(head)))]
        if section.notes:
            parts.append("\n".join(f"* {note}" for note in section.notes))
    return "\n\n".join(parts) + "\n"


def open_console() -> Console:
    """The terminal; into a file or a pipe, lines are long enough for the widest table."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _WIDE))


def show(console: Console, section: Section) -> None:
    console.rule(section.title, align="left")
    for table in section.tables:
        (_, *workloads), *body = rows(table)
        grid = Grid(title=table.title, title_justify="left", title_style="bold")
        grid.add_column("", min_width=24)
        for workload in workloads:
            grid.add_column(workload.replace(", ", "\n"), justify="right", no_wrap=True)
        timed = len({name for m in table.measurements for name in m.times})
        for number, line in enumerate(body, 1):
            grid.add_row(*line, end_section=number == timed)
        console.print(grid)
    for note in section.notes:
        console.print(note, highlight=False, markup=False)
    console.print()


def show_goals(console: Console, goals: Sequence[Goal]) -> None:
    if not goals:
        return
    grid = Grid(title="Goals", title_justify="left", title_style="bold")
    for name in GOAL_HEAD:
        grid.add_column(name, justify="left" if name == "goal" else "right")
    for goal in goals:
        grid.add_row(*goal_row(goal), style="" if goal.met else "yellow")
    console.print(grid)
    console.print(f"{sum(goal.met for goal in goals)} of {len(goals)} goals reached", highlight=False)


def draw(sections: Sequence[Section]) -> str | None:
    """The picture as a file's text, or None where nothing was measured that it shows."""
    goals = [g for section in sections for g in section.goals if g.unit == "×" and not g.at_most]
    found = [m for section in sections for table in section.tables for m in table.measurements]
    curves = {m.workload: m.curve for m in found if m.curve}
    parts: list[Html] = []
    height = 0
    if goals:
        parts += _bars(goals)
        height = _TOP + _ROW * len(goals) + 36
    if curves:
        parts += _curves(curves, height)
        height += _CURVE_HEIGHT + 70
    title = "wirebound bench: what was reached beside the goals"
    return picture(title, parts, WIDTH, height, _STYLE) if parts else None


def _bars(goals: Sequence[Goal]) -> list[Html]:
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


def _curves(curves: Mapping[str, Mapping[float, float]], top: int) -> list[Html]:
    left, head, foot = 60, top + 56, top + 26 + _CURVE_HEIGHT
    across = log_axis([density for curve in curves.values() for density in curve], left, RIGHT)
    up = log_axis([1.0, *(ratio for curve in curves.values() for ratio in curve.values())], foot, head)
    parts = [
        text(12, top + 24, "Dense ÷ ours at rising density", "title", None),
        text(12, top + 42, "one layer's work; below the broken line dense is faster", anchor=None),
        *rungs(up, left, RIGHT, lambda value: f"{value:g}×"),
        tag("line", x1=left, x2=RIGHT, y1=up.at(1), y2=up.at(1), class_="one"),
        *(text(across.place(value), foot + 18, f"{value:g} %") for value in across.ticks),
    ]
    for number, (name, curve) in enumerate(curves.items()):
        line, y = f"curve c{number % 4}", head + 16 * number
        path = "L".join(f"{across.at(density)} {up.at(ratio)}" for density, ratio in curve.items())
        parts += [tag("path", d=f"M{path}", class_=line), tag("path", d=f"M{LEFT + 110} {y}h24", class_=line)]
        parts.append(text(LEFT + 142, y + 4, name, anchor=None))
    return parts
