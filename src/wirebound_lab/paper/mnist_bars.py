"""MNIST with a few thousand connections: the paper's two figures, our own recipe, and the comparators.

    python -m wirebound_lab.paper.mnist_bars choose --out results/mnist/choice     settings, on held-out training data
    python -m wirebound_lab.paper.mnist_bars run --out results/mnist/test          the test set, once for each seed

Every row is the last epoch of 784-300-100-10. ``choose`` compares settings on 10,000 held-out training examples;
what it finds best is written into the rows and presets here by hand, and only then is ``run`` called.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.config import make_config
from wirebound_lab.run.presets import preset

HELD_OUT = 10_000


@dataclass(frozen=True)
class Row:
    """One line of the table: settings, and the figure that it is held against."""

    name: str
    settings: dict[str, Any]
    bar: str
    preset: str = "paper"
    seeds: Sequence[int] = field(default=(0, 1, 2))

    def config(self, seed: int, **more: Any) -> TrainConfig:
        return make_config(preset(self.preset), self.settings, {"seed": seed, **more})


ROWS = (
    Row("paper-1.3", {"connectivity": 0.013, "epochs": 10}, "paper: 96.2 %", "paper", tuple(range(10))),
    Row(
        "paper-1.3-uniform",
        {"connectivity": 0.013, "epochs": 10, "newborns": "uniform"},
        "paper: 96.2 %; Algorithm 1 read literally",
        "paper",
        tuple(range(10)),
    ),
    Row("paper-1.0", {"connectivity": 0.01, "epochs": 20}, "paper: 96.3 %", "paper", (0, 1, 2, 3, 4)),
    Row("paper-1.0-layer", {"connectivity": 0.01, "epochs": 20, "scope": "layer"}, "paper: 96.3 %"),
    Row("paper-1.0-uniform", {"connectivity": 0.01, "epochs": 20, "newborns": "uniform"}, "paper: 96.3 %"),
    Row("recommended-1.0", {"connectivity": 0.01}, "97.3 %; published record 97.64 %", "recommended", (0, 1, 2, 3, 4)),
    Row("thorough-1.0", {"connectivity": 0.01}, "published record 97.64 %", "thorough", (0, 1, 2, 3, 4)),
    Row("thorough-2.0", {"connectivity": 0.02}, "published 98.01 %, 98.21 %", "thorough"),
    Row("thorough-5.0", {"connectivity": 0.05, "lr": 1.0, "l1": 5e-5}, "published 98.47 %", "thorough"),
    Row("fixed-1.0", {"connectivity": 0.01, "epochs": 20, "method": "fixed"}, "about 81 %"),
    Row("dense", {"epochs": 20, "method": "dense"}, "98.3 %"),
)


def run_rows(rows: Sequence[Row], out: Path, held_out: int) -> list[dict[str, Any]]:
    """Train every row with every seed; one line of the table for each row."""
    table = []
    for row in rows:
        summaries = []
        for seed in row.seeds:
            folder = out / "runs" / f"{row.name}-s{seed}"
            config = row.config(seed, validation=held_out)
            summary = train(config, folder, overwrite=True).summary
            summaries.append(summary)
            kept = summary["budget"] is None or summary["min_active"] == summary["max_active"] == summary["budget"]
            assert kept, f"{row.name}: the budget was not kept"
        accuracies = [100 * summary["test_accuracy"] for summary in summaries]
        line = {
            "name": row.name,
            "bar": row.bar,
            "accuracy_percent": [round(a, 2) for a in accuracies],
            "mean": round(statistics.mean(accuracies), 3),
            "spread": round(statistics.stdev(accuracies), 3) if len(accuracies) > 1 else 0.0,
            "seeds": list(row.seeds),
            "connections": summaries[0]["max_active"],
            "evaluated_on": summaries[0]["evaluated_on"],
            "seconds_each": round(statistics.mean(s["seconds"] for s in summaries), 1),
            "path": summaries[0]["path"],
            "settings": row.config(row.seeds[0]).as_dict(),
        }
        table.append(line)
        print(f"{row.name:<24} {line['mean']:6.2f} ± {line['spread']:.2f} %  ({row.bar})", flush=True)
    return table


def markdown(table: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| run | connections | accuracy, last epoch | seeds | to compare | seconds each |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for line in table:
        each = ", ".join(f"{a:.2f}" for a in line["accuracy_percent"])
        lines.append(
            f"| {line['name']} | {line['connections']:,} | {line['mean']:.2f} ± {line['spread']:.2f} % ({each}) "
            f"| {len(line['seeds'])} | {line['bar']} | {line['seconds_each']} |"
        )
    part = table[0]["evaluated_on"]
    return f"Accuracy on the {part} part, mean ± standard deviation over seeds.\n\n" + "\n".join(lines) + "\n"


def write(table: list[dict[str, Any]], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    (out / "table.md").write_text(markdown(table), encoding="utf-8")
    print(f"table: {out / 'table.md'}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="MNIST with a few thousand connections.")
    parser.add_argument("what", choices=("choose", "run"), help="compare settings on held-out data, or run the test")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of rows")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: Sequence[Row] = ROWS
    held_out = 0
    if options.what == "choose":
        from wirebound_lab.paper.mnist_choice import CHOICES  # here, because it is made of our rows

        rows, held_out = CHOICES, HELD_OUT
    chosen = [row for row in rows if not options.only or row.name in options.only]
    write(run_rows(chosen, options.out, held_out), options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
