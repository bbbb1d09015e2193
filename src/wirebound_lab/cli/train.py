"""Train a network inside a budget of connections. Settings come from the preset, then from --config, then from the options
given here. Defaults are the paper's; a task and a method may have defaults of their own.

example: wirebound train --data mnist --connectivity 0.01 --epochs 20 --seed 0 --out runs/x
"""

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from wirebound.distributed import rank
from wirebound.ops import library
from wirebound_lab.cli.info import kernels
from wirebound_lab.cli.settings import add_common, add_settings, read_options
from wirebound_lab.run import RunConfig, RunResult, train
from wirebound_lab.run.config import TASK, tasks
from wirebound_lab.run.distributed import in_torchrun, launch
from wirebound_lab.run.loop import Recorder, RunProgress
from wirebound_lab.run.processes import keep_freed_memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="run folder to write (default: runs/DATA-METHOD-CONNECTIVITY-sSEED)")
    parser.add_argument("--overwrite", action="store_true", help="replace the run folder if it exists")
    text = "resume the run in --out from its last checkpoint, with its settings; where there is none, begin"
    parser.add_argument("--resume", action="store_true", help=text)
    parser.add_argument("--config", type=Path, help="JSON or TOML file with settings, by the names below with _ for -")
    add_common(parser)
    parser.add_argument("--processes", type=int, default=1, help="processes that train together (default: 1)")
    text = "also write TensorBoard scalars while training, to a folder in DIR with the name of the run folder"
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help=text)
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    read_options(options)  # what is wrong with them is said before processes start
    if options.processes != 1:
        return launch(run_rank, (options,), options.processes)
    with in_torchrun():
        return run_rank(options)


def run_rank(options: argparse.Namespace) -> int:
    """The run in this process; where there are several, rank 0 has the word."""
    config = read_options(options)
    if getattr(options, "own_process", False) and tasks()[config.task].large_batches:
        keep_freed_memory()
    console = Console(quiet=options.quiet or rank() > 0)
    if library.isa() is None:
        console.print(f"kernels: {kernels()}", highlight=False, soft_wrap=True, markup=False)
    size = f"k{config.budget}" if config.budget else f"{config.connectivity or 1:g}"
    what = config.data if config.task == TASK else config.task
    out = options.out or Path("runs") / f"{what}-{config.method}-{size}-s{config.seed}"
    result = _train(config, out, options, console)
    if rank() == 0:
        console.print(_summary_table(result.summary))
        console.print(f"run folder: {result.folder}", highlight=False)
    return 0


def _train(config: RunConfig, out: Path, options: argparse.Namespace, console: Console) -> RunResult:
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} steps")),
        *(TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[state]}")),
    )
    with Progress(*columns, console=console, disable=console.quiet) as bar:
        task = bar.add_task("epoch 0", total=None, state="")
        last = ""

        def listener(now: RunProgress) -> None:
            nonlocal last
            if now.accuracy is not None:
                last = f"accuracy {100 * now.accuracy:.2f} %"
            epoch, state = f"epoch {now.epoch}/{now.epochs}", f"loss {now.loss:.4f}  {last}"
            bar.update(task, description=epoch, total=now.steps, completed=now.step, state=state)

        recording: AbstractContextManager[Recorder | None] = nullcontext()
        if options.tensorboard is not None and rank() == 0:
            from wirebound_lab.run.tensorboard import TensorBoard  # here, because only this needs its package

            recording = TensorBoard(options.tensorboard / out.name, "validation" if config.validation else "test")
        with recording as recorder:
            keep = {"overwrite": options.overwrite, "resume": options.resume}
            return train(config, out, **keep, listener=listener, recorder=recorder)


def _summary_table(summary: dict[str, Any]) -> Table:
    """The end of a run in a few lines, beside the paper's figure where it has one."""
    table = Table(show_header=False, box=None, pad_edge=False)
    part, budget = "test" if summary["evaluated_on"] == "test" else "validation", summary["budget"]
    table.add_row(f"{part} accuracy, last epoch", f"{100 * summary['test_accuracy']:.2f} %")
    headline = tasks()[summary.get("task", TASK)].headline
    if headline:
        table.add_row("result", headline.format(**summary))
    if "paper" in summary:
        paper = summary["paper"]
        table.add_row("the paper's figure", f"{100 * paper['accuracy']:.1f} % after {paper['epochs']} epochs")
    share = f"{100 * summary['connectivity']:.2f} %"
    table.add_row("connections", f"{summary['max_active']:,} of {summary['possible']:,} ({share})")
    if budget is not None:
        kept = summary["min_active"] == summary["max_active"] == budget
        table.add_row("budget", f"{budget:,}, {'kept at every step' if kept else 'NOT KEPT'}")
    table.add_row("memory of model and optimiser", f"{sum(entry['bytes'] for entry in summary['ledger']):,} B")
    rate = 1e6 * summary["training_seconds"] / summary["steps"]
    table.add_row("time", f"{summary['seconds']:.1f} s, {rate:.0f} µs a step ({summary['path']} path)")
    return table
