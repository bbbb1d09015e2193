"""What was reached on every kind of processor of a folder of results: one table of goals, and what may be quoted from it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..tables import markdown_table
from .text import amount

Record = Mapping[str, Any]  # a bench.json
Goals = dict[str, dict[str, Record]]  # by subject, by kind
FASTER, SLOWEST = "up to a density of", "slowest at any density"


def read(folder: Path) -> dict[str, Record]:
    """The results of each kind, in the order of their names."""
    found = sorted(folder.glob("*/bench.json"))
    return {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in found}


def goals_of(kinds: Mapping[str, Record]) -> Goals:
    goals: Goals = {}
    for kind, record in kinds.items():
        for section in record["sections"]:
            for goal in section["goals"]:
                goals.setdefault(goal["subject"], {})[kind] = goal
    return goals


def worse(goals: Mapping[str, Record]) -> str:
    """The kind on which less was reached."""
    at_most = next(iter(goals.values()))["at_most"]
    return (max if at_most else min)(goals, key=lambda kind: goals[kind]["reached"])


def summary(kinds: Mapping[str, Record]) -> str:
    machines, names = [], list(kinds)
    for kind, record in kinds.items():
        about, goals = record["machine"], [goal for section in record["sections"] for goal in section["goals"]]
        reached = f"{sum(goal['met'] for goal in goals)} of {len(goals)}"
        versions = f"torch {about['torch']}, kernels {about['kernels']}"
        machines.append([kind, about["processor"], about["cores"], versions, record["date"][:10], reached])
    rows = []
    for subject, of in goals_of(kinds).items():
        cells = [_cell(of[kind]) if kind in of else "not measured" for kind in names]
        everywhere = all(kind in of and of[kind]["met"] for kind in names)
        rows.append([subject, *cells, _reached(of[worse(of)]), "yes" if everywhere else "no"])
    parts = [
        "# Speed and memory by kind of processor",
        "Made by `wirebound bench --out results/bench` on each. A kind is what our kernels run on (`WIREBOUND_ISA` chooses); "
        "where dense torch runs on another instruction set of the same machine, the name says both.",
        markdown_table(["kind", "processor", "cores", "versions", "date", "goals reached"], machines, [2, 5]),
        "Reached, and in brackets the goal; a goal counts as met if it is met on every kind.",
        markdown_table(["goal", *names, "worse", "met"], rows, range(1, len(names) + 3)),
    ]
    return "\n\n".join(parts) + "\n"


def _reached(goal: Record) -> str:
    return amount(goal["reached"], goal["unit"])


def _cell(goal: Record) -> str:
    return f"{_reached(goal)} ({'≤' if goal['at_most'] else '≥'} {amount(goal['wanted'], goal['unit'])})"


def density_sentence(kinds: Mapping[str, Record]) -> str:
    """Up to which density ours is faster, on each kind; empty where nobody measured it."""
    said = []
    for kind, record in kinds.items():
        goals = [goal for section in record["sections"] for goal in section["goals"]]
        faster = [goal["reached"] for goal in goals if FASTER in goal["subject"]]
        slowest = [goal["reached"] for goal in goals if SLOWEST in goal["subject"]]
        if faster:
            longest = f", and at no density more than {max(slowest):.2f} times as long as dense" if slowest else ""
            said.append(f"up to {min(faster):g} % on {kind}{longest}")
    return f"On one core, a layer's work takes no longer than dense torch's {'; '.join(said)}.\n" if said else ""


def write(folder: Path) -> list[Path]:
    """``README.md`` and ``density.md``, from all kinds that the folder holds."""
    kinds = read(folder)
    texts = {"README.md": summary(kinds), "density.md": density_sentence(kinds)}
    written = {folder / name: text for name, text in texts.items() if text}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return list(written)
