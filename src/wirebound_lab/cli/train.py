"""``wirebound train``: one run, with a progress bar, a summary, and a run folder."""

from __future__ import annotations

import argparse
import dataclasses
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from wirebound.distributed import rank
from wirebound.ops import library
from wirebound_lab.cli.info import kernels
from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run import loop as training
from wirebound_lab.run.config import make_config, read_settings
from wirebound_lab.run.interrupt import Interrupted
from wirebound_lab.run.launch import in_torchrun, launch
from wirebound_lab.run.loop import Recorder
from wirebound_lab.run.presets import PRESETS, preset
from wirebound_lab.run.resume import settings_to_resume

_PARSERS: dict[str, Any] = {"int": int, "float": float, "str": str}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="train a network inside a budget of connections",
        description="Train a network inside a budget of connections. Settings come from the preset, then from "
        "--config, then from the options given here. Defaults are the paper's.",
        epilog="example: wirebound train --data mnist --connectivity 0.01 --epochs 20 --seed 0 --out runs/x",
    )
    parser.add_argument("--out", type=Path, help="run folder to write (default: runs/DATA-METHOD-CONNECTIVITY-sSEED)")
    parser.add_argument("--overwrite", action="store_true", help="replace the run folder if it exists")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in --out from its last checkpoint, with its settings; where there is none, begin",
    )
    parser.add_argument("--config", type=Path, help="JSON or TOML file with settings, by the names below with _ for -")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="paper", help="settings to start from (default: paper)")
    parser.add_argument("--processes", type=int, default=1, help="processes that train together (default: 1)")
    parser.add_argument(
        "--tensorboard",
        type=Path,
        metavar="DIR",
        help="also write TensorBoard scalars while training, to a folder in DIR with the name of the run folder",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    group = parser.add_argument_group("settings")
    for field in dataclasses.fields(TrainConfig):
        _add_setting(group, field)
    parser.set_defaults(run=run)


def _add_setting(group: Any, field: dataclasses.Field[Any]) -> None:
    kind = str(field.type).replace(" | None", "")
    flag = "--" + field.name.replace("_", "-")
    text = field.metadata["help"]
    default = field.default if field.default is not dataclasses.MISSING else "300 100"
    if default is not None:
        text += f" (default: {default})"
    text = text.replace("%", "%%")
    common: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text, "dest": field.name}
    if kind == "bool":
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
    elif kind == "list[int]":
        group.add_argument(flag, type=int, nargs="*", metavar="N", **common)
    elif "choices" in field.metadata:
        group.add_argument(flag, choices=field.metadata["choices"], **common)
    else:
        group.add_argument(flag, type=_PARSERS[kind], metavar=kind.upper(), **common)


def settings(options: argparse.Namespace) -> TrainConfig:
    """The settings of a command line: preset, config file, options, in rising rank."""
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    given = {name: value for name, value in vars(options).items() if name in names}
    from_file = read_settings(options.config) if options.config else {}
    if options.resume and options.out is not None:
        stored = settings_to_resume(options.out, {**from_file, **given})
        if stored is not None:
            return stored
    return make_config(preset(options.preset), from_file, given)


def run(options: argparse.Namespace) -> int:
    settings(options)  # what is wrong with them is said before processes start
    try:
        if options.processes != 1:
            return launch(run_rank, (options,), options.processes)
        with in_torchrun():
            return run_rank(options)
    except Interrupted as error:
        Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(f"wirebound: {error}")
        return error.code


def run_rank(options: argparse.Namespace) -> int:
    """The run in this process; where there are several, rank 0 has the word."""
    config = settings(options)
    console = Console(quiet=options.quiet or rank() > 0)
    if library.isa() is None:
        console.print(f"kernels: {kernels()}", highlight=False, soft_wrap=True, markup=False)
    result = _train(config, options.out or default_folder(config), options, console)
    if rank() == 0:
        console.print(summary_table(result.summary))
        console.print(f"run folder: {result.folder}", highlight=False)
    return 0


def _train(config: TrainConfig, out: Path, options: argparse.Namespace, console: Console) -> training.RunResult:
    """The run, with a progress bar."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=console, disable=console.quiet) as bar:
        task = bar.add_task("epoch 0", total=None, state="")
        last = ""

        def listener(progress: training.Progress) -> None:
            nonlocal last
            if progress.accuracy is not None:
                last = f"accuracy {100 * progress.accuracy:.2f} %"
            bar.update(
                task,
                description=f"epoch {progress.epoch}/{progress.epochs}",
                total=progress.steps,
                completed=progress.step,
                state=f"loss {progress.loss:.4f}  {last}",
            )

        with _recorder(config, out, options) as recorder:
            keep = {"overwrite": options.overwrite, "resume": options.resume}
            return train(config, out, **keep, listener=listener, recorder=recorder)


def _recorder(config: TrainConfig, out: Path, options: argparse.Namespace) -> AbstractContextManager[Recorder | None]:
    """What --tensorboard asks for; its package is only imported then."""
    if options.tensorboard is None or rank() > 0:
        return nullcontext()
    from wirebound_lab.run.tensorboard import TensorBoard

    return TensorBoard(options.tensorboard / out.name, "validation" if config.validation else "test")


def default_folder(config: TrainConfig) -> Path:
    size = f"k{config.budget}" if config.budget else f"{config.connectivity or 1:g}"
    return Path("runs") / f"{config.data}-{config.method}-{size}-s{config.seed}"


def summary_table(summary: dict[str, Any]) -> Table:
    """The end of a run in a few lines, beside the paper's figure where it has one."""
    table = Table(show_header=False, box=None, pad_edge=False)
    budget = summary["budget"]
    part = "test" if summary["evaluated_on"] == "test" else "validation"
    table.add_row(f"{part} accuracy, last epoch", f"{100 * summary['test_accuracy']:.2f} %")
    if "paper" in summary:
        paper = summary["paper"]
        table.add_row("the paper's figure", f"{100 * paper['accuracy']:.1f} % after {paper['epochs']} epochs")
    connections = f"{summary['max_active']:,} of {summary['possible']:,} ({100 * summary['connectivity']:.2f} %)"
    table.add_row("connections", connections)
    if budget is not None:
        kept = summary["min_active"] == summary["max_active"] == budget
        table.add_row("budget", f"{budget:,}, {'kept at every step' if kept else 'NOT KEPT'}")
    bytes_held = sum(entry["bytes"] for entry in summary["ledger"])
    table.add_row("memory of model and optimiser", f"{bytes_held:,} B")
    rate = 1e6 * summary["training_seconds"] / summary["steps"]
    table.add_row("time", f"{summary['seconds']:.1f} s, {rate:.0f} µs a step ({summary['path']} path)")
    return table
