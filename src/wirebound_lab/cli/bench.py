"""Measure speed and memory on this machine: dense torch, torch's CSR and wirebound in turns, answers compared first, each
goal beside what was reached.

example: wirebound bench --quick --only linear,step --out results/bench
"""

import argparse
import dataclasses
import math
from pathlib import Path

import torch

from wirebound_lab.bench import devices, machine, suite
from wirebound_lab.bench.contest import Section, Settings
from wirebound_lab.bench.text import open_console, show, show_goals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="fewer samples, and the largest workloads left out")
    text = "how long each contender is timed on each workload (default: 0.3, with --quick 0.05)"
    parser.add_argument("--seconds", type=float, metavar="S", help=text)
    parser.add_argument("--only", metavar="NAMES", help=f"sections to measure, of {','.join(suite.SECTIONS)} (default: all)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of all contenders (default: 1)")
    text = "check this device (cuda, xpu, cpu) against the CPU instead, then time networks there, as they are and compiled"
    parser.add_argument("--device", metavar="NAME", help=text)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for bench.json, bench.md and bench.svg, in one of its own for each kind of processor")


def run(options: argparse.Namespace) -> int:
    if options.threads < 1:
        raise ValueError(f"threads (={options.threads}) must be >= 1")
    if options.seconds is not None and not 0 < options.seconds < math.inf:
        raise ValueError(f"seconds (={options.seconds}) must be a number above 0")
    if options.device is not None:
        return run_device(options)
    names = suite.choose(options.only)
    console = open_console()
    about = machine.describe()
    for name, value in about.items():
        if value is not None:
            console.print(f"{name.replace('_', ' ')}: {value}", highlight=False, markup=False)
    console.print()
    sections: list[Section] = []
    with console.status("measuring") as status:
        settings = Settings(threads=options.threads, say=lambda text: status.update(f"measuring: {text}"))
        if options.quick:
            settings = dataclasses.replace(settings, seconds=0.05, rounds=4, quick=True)
        if options.seconds is not None:
            settings = dataclasses.replace(settings, seconds=options.seconds)
        for name in names:
            sections.append(suite.SECTIONS[name](settings))
            show(console, sections[-1])
    show_goals(console, [goal for section in sections for goal in section.goals])
    about = machine.describe_after(about, max(2, options.threads))  # some sections use two threads
    if about["warning"]:
        console.print(about["warning"], highlight=False, markup=False)
    if options.out is not None:
        for path in suite.write(options.out, sections, settings, about):
            console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
    return 0


def run_device(options: argparse.Namespace) -> int:
    device = devices.require_device(options.device)
    torch.set_num_threads(options.threads)
    console = open_console()
    seconds = options.seconds or (0.2 if options.quick else 5.0)
    with console.status(f"comparing {device} with the CPU, then timing"):
        report = devices.measure(device, machine.describe(), seconds, options.quick)
    console.print(devices.as_markdown(report), highlight=False, markup=False)
    if options.out is not None:
        for path in devices.write(options.out, report):
            console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
    return 0 if report.is_right else 1
