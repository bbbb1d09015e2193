"""Train every combination of the given values, each as a process of this machine with a run folder of its own. Started
again, it resumes: finished runs are not repeated. With --storage, several machines share one sweep. With --range, Optuna
proposes the trials.

example: wirebound sweep --connectivity 0.005 0.01 --method deep-r fixed --seed 0 1 2 --set lr=0.05,0.5 --out runs/grid
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from wirebound_lab.cli.main import main
from wirebound_lab.cli.settings import add_common, parse_given
from wirebound_lab.run.config import METHOD, PRESETS, TASK, ConfigError, known_settings
from wirebound_lab.sweep.drive import LocalSource, Source, drive
from wirebound_lab.sweep.outcome import FAILED, FINISHED, INTERRUPTED, RUNNING, group, write_sweep
from wirebound_lab.sweep.plan import Plan, check_search, make_plan, parse_range, parse_values, show
from wirebound_lab.sweep.study import StudySource, open_study
from wirebound_lab.tables import plus_minus

_LISTED = ("task", "data", "method", "connectivity", "budget", "epochs", "validation", "seed")  # each may have several values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="folder for the run folders and sweep.json")
    parser.add_argument("--jobs", type=int, default=None, help="runs at a time (default: processors of this machine)")
    parser.add_argument("--config", type=Path, help="TOML or JSON file with the tables settings, grid and search")
    add_common(parser)
    for name in _LISTED:
        text = known_settings(TASK, METHOD)[name].help.replace("%", "%%")
        parser.add_argument(f"--{name}", nargs="+", metavar="VALUE", help=text)
    text = "values of any setting of `wirebound train`; lists as [300,100]"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=V1[,V2...]", help=text)
    text = "search this setting with Optuna"
    parser.add_argument("--range", action="append", default=[], metavar="NAME=LOW:HIGH[:log]", help=text)
    parser.add_argument("--trials", type=int, default=20, help="trials of a search in all (default: 20)")
    parser.add_argument("--storage", help="Optuna storage shared by machines: a file path, or a database address")
    parser.add_argument("--study", help="name of the study in the storage (default: name of --out)")
    parser.add_argument("--list", action="store_true", help="list the runs of the grid and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress and no table")


def run(options: argparse.Namespace) -> int:
    given: dict[str, list[str]] = {name: values for name in _LISTED if (values := getattr(options, name))}
    chosen: dict[str, str] = {name: given[name][0] for name in ("task", "method") if name in given}
    grid = {name: [parse_given({name: value}, chosen)[name] for value in values] for name, values in given.items()}
    grid |= dict(map(parse_values, options.set))
    common = {**PRESETS.get(options.preset, {}), **({"imports": options.imports} if hasattr(options, "imports") else {})}
    plan = make_plan(common, options.config, grid, dict(map(parse_range, options.range)))
    console = Console(quiet=options.quiet, soft_wrap=True, highlight=False)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = processors if options.jobs is None else options.jobs
    if jobs < 1:
        raise ConfigError(f"jobs (={jobs}) must be >= 1")
    if options.list:
        for trial in plan.trials():
            console.print(trial.name, markup=False)
        return 0
    check_search(plan) if plan.search else plan.trials()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out (={options.out}) cannot be made: {error}") from error

    def note(source: Source) -> None:
        write_sweep(options.out, plan, source.trials, source.outcomes)

    source = make_source(options, plan, note)
    note(source)
    columns = (TextColumn("{task.completed}/{task.total} runs"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[now]}"))
    total = options.trials if plan.search else len(source.trials)
    try:
        with Progress(*columns, console=console, disable=options.quiet) as bar:
            task = bar.add_task("", total=total, completed=source.already, now="")

            def listener(running: list[str]) -> None:
                ended = sum(outcome.state != RUNNING for outcome in source.outcomes.values())
                bar.update(task, completed=ended, now=", ".join(running[:3]))

            drive(source, options.out, jobs, listener, train_trial)
    finally:
        note(source)
    return show_end(console, plan, source, options.out)


def train_trial(arguments: list[str]) -> int:
    """In a process of its own: ``wirebound train`` on one thread."""
    torch.set_num_threads(1)
    return main(["train", *arguments])


def make_source(options: argparse.Namespace, plan: Plan, note: Any) -> Source:
    """Trials from a list of our own, or from an Optuna study where there is a storage or a search."""
    if options.storage is None and not plan.search:
        return LocalSource(plan, options.out, note)
    if options.trials < 1:
        raise ConfigError(f"trials (={options.trials}) must be >= 1")
    storage = options.storage or str(options.out / "optuna.journal")
    study = open_study(storage, options.study or options.out.resolve().name)
    return StudySource(plan, options.out, study, options.trials if plan.search else None, note, storage)


def show_end(console: Console, plan: Plan, source: Source, out: Path) -> int:
    """The table over seeds, what failed and why, and the exit code."""
    groups = group(plan, source.trials, source.outcomes)
    if plan.search:
        groups = sorted(groups, key=lambda g: -g.mean)[:10]
    names = [name for name in plan.varied if name != "seed"]
    parts = {o.evaluated_on for o in source.outcomes.values() if o.state == FINISHED}
    table = Table(*names, f"{'/'.join(sorted(filter(None, parts))) or 'test'} accuracy, %", "seeds", "seconds", box=None)
    for found in groups:
        values = [show(found.settings[name]) for name in names]
        accuracy = plus_minus(found.mean, found.spread, unit="%").removesuffix(" %")
        table.add_row(*values, accuracy, str(len(found.seeds)), f"{found.seconds:.1f}")
    console.print(table)
    if any(g.spread is not None for g in groups):
        console.print("± is the sample standard deviation over seeds", style="dim")
    elsewhere = sum(outcome.state == RUNNING for outcome in source.outcomes.values())
    if elsewhere:
        console.print(f"{elsewhere} still running elsewhere; start this again later for the whole table")
    ends = [(trial.name, source.outcomes.get(trial.key)) for trial in source.trials]
    failed = [(name, end) for name, end in ends if end is not None and end.state in (FAILED, INTERRUPTED)]
    for name, end in failed:
        print(f"failed: {name}: {end.error or 'interrupted; start the sweep again to resume'}", file=sys.stderr)
    console.print(f"written: {out / 'sweep.json'}", markup=False)
    return 1 if failed else 0
