"""MNIST learned from nothing on emulated chips, inside their memory: test accuracy of the last epoch, and all RAM in use.

    python benchmarks/device_runs.py --out results/device

784-300-100-10 with 2,662 connections (1 %), one example a step, connections checked on the chip after every step. Settings
were chosen on 10,000 held-out training examples with the same arithmetic on this computer (`results/device/choice.md`), then
each chip ran once. Runs are kept in `--runs` and finished ones are not repeated.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirebound_lab.cli import main as wirebound
from wirebound_lab.paper.study import study_parser, write_study
from wirebound_lab.tables import markdown_table

SIZES = "784-300-100-10"
SETTINGS = [
    "--budget", "2662", "--lr", "0.1", "--l1", "1e-4", "--rewire-every", "10", "--schedule", "linear", "--final-lr", "0.001",
    "--init", "sparse-fan-in", "--epochs", "12",
]  # fmt: skip
CASES = {
    "float-cortex-m4": ["--numbers", "float", "--on", "cortex-m4", "--ram", str(28 * 1024)],
    "fixed-cortex-m4": ["--numbers", "fixed", "--on", "cortex-m4", "--ram", str(20 * 1024)],
    "fixed-cortex-m0": ["--numbers", "fixed", "--on", "cortex-m0"],
}
GOAL = 0.966


def run(name: str, words: Sequence[str], runs: Path) -> dict[str, Any]:
    """The summary of a run, which is made unless it is there."""
    folder = runs / name
    if not folder.exists() and wirebound(["device", SIZES, *words, "--train", str(folder)]):
        raise RuntimeError(f"run {name} failed")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    kept = ("test_accuracy", "evaluated_on", "steps", "min_active", "max_active", "budget", "path", "seed", "epochs", "device", "ledger", "layers")
    return {"name": name, "command": f"wirebound device {SIZES} {' '.join(words)}", **{key: summary[key] for key in kept}}


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    about = (
        "MNIST, 784-300-100-10, learned from nothing on emulated chips, one example a step, seed 0, accuracy of the last epoch, "
        f"measured on the chip; the goal is {100 * GOAL:.1f} %. RAM is all that was in use, stack included.\n"
        "Made by `python benchmarks/device_runs.py --out results/device`."
    )
    columns = ["chip and numbers", "test accuracy", "RAM, bytes", "limit", "of it stack", "connections after every step", "steps"]
    rows = []
    for line in lines:
        chip, kept = line["device"], f"{line['min_active']:,} to {line['max_active']:,}"
        cells = [line["path"], f"{100 * line['test_accuracy']:.2f} %", f"{chip['ram']:,}", f"{chip['limit']:,}", f"{chip['stack']:,}"]
        rows.append([*cells, kept, f"{line['steps']:,}"])
    commands = "\n".join(line["command"] for line in lines)
    return f"{about}\n\n{markdown_table(columns, rows)}\n\n```\n{commands}\n```\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("MNIST on emulated chips.")
    parser.add_argument("--runs", type=Path, default=Path("runs/device"), help="folder of the runs (default: runs/device)")
    options = parser.parse_args(arguments)
    lines = [run(name, [*SETTINGS, *words, "--checked"], options.runs) for name, words in CASES.items()]
    write_study(options.out, "mnist", lines, markdown(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
