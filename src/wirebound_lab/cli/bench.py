"""``wirebound bench``: every goal of speed and memory, measured on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from wirebound_lab.bench import machine, suite
from wirebound_lab.bench.results import Section, Settings
from wirebound_lab.bench.terminal import open_console, show, show_goals


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.description = (
        "Measure speed and memory on this machine: dense torch, torch's CSR and wirebound in turns, answers compared first, "
        "each goal beside what was reached."
    )
    parser.epilog = "example: wirebound bench --quick --only linear,step --out results/bench"
    parser.add_argument("--quick", action="store_true", help="fewer samples, and the largest workloads left out")
    text = "how long each contender is timed on each workload (default: 0.3, with --quick 0.05)"
    parser.add_argument("--seconds", type=float, metavar="S", help=text)
    names = ",".join(suite.SECTIONS)
    parser.add_argument("--only", metavar="NAMES", help=f"sections to measure, of {names} (default: all)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of all contenders (default: 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for bench.json, bench.md and bench.svg")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.threads < 1:
        raise ValueError(f"threads (={options.threads}) must be >= 1")
    if options.seconds is not None and not 0 < options.seconds < math.inf:
        raise ValueError(f"seconds (={options.seconds}) must be a number above 0")
    names = suite.choose(options.only)
    console = open_console()
    about = machine.describe()
    for name, value in about.items():
        if value is None:
            continue
        console.print(f"{name.replace('_', ' ')}: {value}", highlight=False, markup=False)
    console.print()
    sections: list[Section] = []
    with console.status("measuring") as status:
        make = Settings.fast if options.quick else Settings
        settings = make(threads=options.threads, say=lambda text: status.update(f"measuring: {text}"))
        if options.seconds is not None:
            settings = dataclasses.replace(settings, seconds=options.seconds)
        for section in suite.run(names, settings):
            sections.append(section)
            show(console, section)
    show_goals(console, [goal for section in sections for goal in section.goals])
    if options.out is not None:
        for path in suite.write(options.out, sections, settings, about):
            console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
    return 0
