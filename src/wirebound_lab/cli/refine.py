"""Train again with the connections of each layer that the last part of a run had, and report the accuracy of each round.
Round 0 is the run's own allocation, trained for the other seeds too.

example: wirebound refine runs/x --rounds 2 --seeds 0 1 2 --out runs/refined
"""

import argparse
from pathlib import Path

from rich.console import Console

from wirebound_lab.run.refine import LAST, Round, markdown, refine
from wirebound_lab.tables import plus_minus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a finished run with a global budget")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs, the table and refined.json")
    parser.add_argument("--rounds", type=int, default=1, help="refinements, one after another (default: 1)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of each round (default: 0 1 2)")
    parser.add_argument("--last", type=float, default=LAST, help=f"share of a run's epochs that is averaged (default: {LAST})")


def run(options: argparse.Namespace) -> int:
    console = Console(highlight=False, soft_wrap=True)

    def listener(number: int, one: Round) -> None:
        start, end = " + ".join(map(str, one.initial)), " + ".join(f"{n:.0f}" for n in one.final)
        console.print(f"round {number}: {start} -> {end}, accuracy {plus_minus(one.mean, one.spread, unit='%')}")

    how = {"rounds": options.rounds, "seeds": options.seeds, "last": options.last}
    found = refine(options.folder, options.out, **how, listener=listener)
    table = options.out / "rounds.md"
    table.write_text(markdown(found, options.seeds), encoding="utf-8")
    console.print(f"table: {table}; settings with the last allocation: {options.out / 'refined.json'}")
    return 0
