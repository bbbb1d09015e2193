"""The result on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as Grid

from wirebound_lab.bench.results import Goal, Section, Table
from wirebound_lab.bench.text import GOAL_HEAD, goal_row, rows

_WIDE = 140


def open_console() -> Console:
    """The terminal; into a file or a pipe, lines are long enough for the widest table."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _WIDE))


def show(console: Console, section: Section) -> None:
    """The tables and notes of a section."""
    console.rule(section.title, align="left")
    for table in section.tables:
        console.print(_grid(table))
    for note in section.notes:
        console.print(note, highlight=False, markup=False)
    console.print()


def show_goals(console: Console, goals: Sequence[Goal]) -> None:
    """Every goal beside what was reached."""
    if not goals:
        return
    grid = Grid(title="Goals", title_justify="left", title_style="bold")
    for name in GOAL_HEAD:
        grid.add_column(name, justify="left" if name == "goal" else "right")
    for goal in goals:
        grid.add_row(*goal_row(goal), style="" if goal.met else "yellow")
    console.print(grid)
    console.print(f"{sum(goal.met for goal in goals)} of {len(goals)} goals reached", highlight=False)


def _grid(table: Table) -> Grid:
    head, *body = rows(table)
    grid = Grid(title=table.title, title_justify="left", title_style="bold")
    grid.add_column("", min_width=24)
    for workload in head[1:]:
        grid.add_column(workload.replace(", ", "\n"), justify="right", no_wrap=True)
    timed = len({name for m in table.measurements for name in m.times})
    for number, line in enumerate(body):
        grid.add_row(*line, end_section=number == timed - 1)
    return grid
