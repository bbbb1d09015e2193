"""Numbers in words and tables: the same rows for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wirebound_lab.bench.results import Goal, Section, Table
from wirebound_lab.tables import markdown_table

SWEPT = "density"  # a number that the name of the workload already says
GOAL_HEAD = ["goal", "wanted", "prototype", "reached", "met"]


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


def amount(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{digits(value)}×" if unit == "×" else f"{digits(value)} {unit}"


def rows(table: Table) -> list[list[str]]:
    """A head with the workloads, then a row for each contender and for each number."""
    found = table.measurements
    times = [{name: seconds(timing.best) for name, timing in m.times.items()} for m in found]
    numbers = [{name: digits(value) for name, value in m.numbers.items() if name != SWEPT} for m in found]
    return [["", *(m.workload for m in found)], *_lines(times), *_lines(numbers)]


def _lines(columns: Iterable[Mapping[str, str]]) -> list[list[str]]:
    columns = list(columns)
    names = dict.fromkeys(name for column in columns for name in column)
    return [[name, *(column.get(name, "") for column in columns)] for name in names]


def goal_row(goal: Goal) -> list[str]:
    """Subject, wanted, prototype, reached, yes or no."""
    wanted, prototype, reached = (amount(value, goal.unit) for value in (goal.wanted, goal.prototype, goal.reached))
    return [goal.subject, f"{'≤' if goal.at_most else '≥'} {wanted}", prototype, reached, "yes" if goal.met else "no"]


def markdown(sections: Sequence[Section], about: dict[str, object]) -> str:
    """The whole result as a Markdown page."""
    facts = [f"{name} {value}" for name, value in about.items() if value is not None and name != "warning"]
    parts = ["# Benchmark", ", ".join(facts) + "."]
    parts.append("Times are the best of many samples taken in turns; ratios are of these.")
    if about.get("warning"):
        parts.append(f"**{about['warning']}**")
    goals = [goal_row(goal) for section in sections for goal in section.goals]
    if goals:
        parts += ["## Goals", markdown_table(GOAL_HEAD, goals, range(1, 5))]
    for section in sections:
        parts.append(f"## {section.title}")
        for table in section.tables:
            head, *body = rows(table)
            parts += [f"### {table.title}", markdown_table(head, body, range(1, len(head)))]
        if section.notes:
            parts.append("\n".join(f"* {note}" for note in section.notes))
    return "\n\n".join(parts) + "\n"
