"""Numbers in words and tables: the same rows for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from wirebound_lab.bench.results import Goal, Section, Table

SWEPT = "density"  # a number that the name of the workload already says
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def seconds(value: float) -> str:
    """Three digits and a unit: 12.3 µs."""
    for size, unit in _UNITS:
        if value >= size:
            return f"{digits(value / size)} {unit}"
    return f"{digits(value * 1e9)} ns"


def digits(value: float) -> str:
    """Three digits that count, whole numbers whole."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    places = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{places}f}" if abs(value) >= 0.1 else f"{value:.2g}"


def rows(table: Table) -> list[list[str]]:
    """A head with the workloads, then a row for each contender and for each number."""
    found = table.measurements
    contenders = _names([list(m.times) for m in found])
    numbers = _names([[name for name in m.numbers if name != SWEPT] for m in found])
    lines = [["", *(m.workload for m in found)]]
    for name in contenders:
        lines.append([name, *(seconds(m.times[name].best) if name in m.times else "" for m in found)])
    for name in numbers:
        lines.append([name, *(digits(m.numbers[name]) if name in m.numbers else "" for m in found)])
    return lines


def _names(lists: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in lists for name in names))


def goal_row(goal: Goal) -> list[str]:
    """Subject, wanted, prototype, reached, yes or no."""
    sign = "≤" if goal.at_most else "≥"
    prototype = "" if goal.prototype is None else amount(goal.prototype, goal.unit)
    met = "yes" if goal.met else "no"
    return [
        goal.subject,
        f"{sign} {amount(goal.wanted, goal.unit)}",
        prototype,
        amount(goal.reached, goal.unit),
        met,
    ]


def amount(value: float, unit: str) -> str:
    return f"{digits(value)}×" if unit == "×" else f"{digits(value)} {unit}"


GOAL_HEAD = ["goal", "wanted", "prototype", "reached", "met"]


def markdown(sections: Sequence[Section], about: dict[str, object]) -> str:
    """The whole result as a Markdown page."""
    facts = [f"{name} {value}" for name, value in about.items() if value is not None and name != "warning"]
    parts = ["# Benchmark", ", ".join(facts) + "."]
    parts.append("Times are the best of many samples taken in turns; ratios are of these.")
    if about.get("warning"):
        parts.append(f"**{about['warning']}**")
    goals = [goal_row(goal) for section in sections for goal in section.goals]
    if goals:
        parts += ["## Goals", _markdown_table([GOAL_HEAD, *goals])]
    for section in sections:
        parts.append(f"## {section.title}")
        for table in section.tables:
            parts += [f"### {table.title}", _markdown_table(rows(table))]
        if section.notes:
            parts.append("\n".join(f"* {note}" for note in section.notes))
    return "\n\n".join(parts) + "\n"


def _markdown_table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
