"""The table of ``mnist_methods``: a row for each method, a column for each connectivity, published figures below."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

# LeNet-300-100 on MNIST in percent, as published: networks of the same shape, trained longer and otherwise than here.
PUBLISHED: dict[str, dict[float, float]] = {
    "SNFS (published)": {0.01: 97.64, 0.02: 98.01, 0.05: 98.47},
    "SET (published)": {0.01: 95.8, 0.02: 97.74, 0.05: 98.14},
    "DEEP R (as others print it)": {0.01: 94.0, 0.02: 98.21, 0.05: 98.06},
}


def table_line(
    method: str, level: float, point: dict[str, Any] | None, summaries: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """One method at one connectivity over its seeds; without runs if no setting stayed within the connectivity."""
    line: dict[str, Any] = {"method": method, "level": level, "settings": point, "runs": len(summaries)}
    if not summaries:
        return line
    accuracies = [100 * summary["test_accuracy"] for summary in summaries]
    return line | {
        "accuracy_percent": [round(accuracy, 2) for accuracy in accuracies],
        "mean": round(statistics.mean(accuracies), 3),
        "spread": round(statistics.stdev(accuracies), 3) if len(accuracies) > 1 else 0.0,
        "connectivity": [round(summary["connectivity"], 6) for summary in summaries],
        "most_active": [summary["max_active"] for summary in summaries],
        "budget_kept": all(
            summary["budget"] is None or summary["min_active"] == summary["max_active"] == summary["budget"]
            for summary in summaries
        ),
        "seconds_each": round(statistics.mean(summary["seconds"] for summary in summaries), 1),
        "path": summaries[0]["path"],
        "evaluated_on": summaries[0]["evaluated_on"],
        "epochs": summaries[0]["epochs"],
    }


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    levels = sorted({line["level"] for line in lines if line["method"] != "dense"})
    cells = {(line["method"], line["level"]): line for line in lines}
    methods = list(dict.fromkeys(line["method"] for line in lines if line["method"] != "dense"))
    rows = [["method", *(f"{100 * level:g} %" for level in levels)], ["---"] * (len(levels) + 1)]
    rows += [[method, *(_cell(cells[method, level]) for level in levels)] for method in methods]
    rows += [[name, *(f"{v:.2f}" if (v := figures.get(level)) else "" for level in levels)] for name, figures in PUBLISHED.items()]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    done = next((line for line in lines if line["runs"]), None)
    head = "" if done is None else f"Accuracy in percent on the {done['evaluated_on']} set after {done['epochs']} epochs"
    return f"{head}, mean ± standard deviation over seeds.\n\n{text}\n{_dense(cells)}\n{_notes(lines)}"


def _cell(line: dict[str, Any]) -> str:
    if not line["runs"]:
        return "not reached"
    cell = f"{line['mean']:.2f} ± {line['spread']:.2f}"
    # Where a method finds its own size, the size that it found.
    most = max(line["connectivity"])
    return cell if abs(most / line["level"] - 1) < 0.02 else f"{cell} (at {100 * most:.2g} %)"


def _dense(cells: dict[tuple[str, float], dict[str, Any]]) -> str:
    dense = cells.get(("dense", 1.0))
    return "" if dense is None or not dense["runs"] else f"\nDense: {dense['mean']:.2f} ± {dense['spread']:.2f} %.\n"


def _notes(lines: Sequence[dict[str, Any]]) -> str:
    """How sizes are counted, and whether budgets held; a size beyond its column is said."""
    above = [
        f"{line['method']} at {100 * line['level']:g} %: up to {100 * max(line['connectivity']):.3g} %"
        for line in lines
        if line["runs"] and max(line["connectivity"]) > line["level"] * 1.001
    ]
    kept = all(line["budget_kept"] for line in lines if line["runs"])
    notes = [
        "soft-deep-r and constant-rate are held against the most connections that they ever had, l1-shrinkage and "
        "pruning, which start dense, against those at the end.",
        "Budgets were kept in every step." if kept else "BUDGETS WERE NOT KEPT.",
        *([f"Above their column in some seed: {'; '.join(above)}."] if above else []),
    ]
    return "\n".join(notes) + "\n"
