"""Versions, the kernels and threads in use, and where each data set was found: what to look at first, and what to put into a
report of a fault. With a run folder or a model's file: its card.

example: wirebound info runs/x
"""

import argparse
import platform
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from wirebound import ops
from wirebound.ops import library
from wirebound.version import __version__
from wirebound_lab import data as datasets
from wirebound_lab.run.config import make_config, read_settings, tasks
from wirebound_lab.run.export_source import model_card
from wirebound_lab.run.record import SUMMARY, read_summary
from wirebound_lab.tasks.perceptron import Perceptron


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", nargs="?", type=Path, metavar="RUN_OR_MODEL", help="a run folder, or a model's file")


def kernels() -> str:
    """Which kernels run, in plain words."""
    isa = library.isa()
    return f"native C++, instruction set {isa}" if isa else f"pure torch, slower; the native kernels {library.reason()}"


def backends() -> list[tuple[str, str]]:
    """Which backend computes on each kind of device that is here."""
    found = [("backend cpu", ops.backend_on(torch.device("cpu")).name)]
    for name in ("cuda", "xpu"):
        if getattr(torch, name).is_available():
            found.append((f"backend {name}", f"{ops.backend_on(torch.device(name)).name}: torch operators, nothing waits for it"))
    return found


def _card(source: Path) -> list[tuple[str, str]]:
    """The card of a model; of a run whose network only its task can build: the run, and what its file says of itself."""
    model = source / "model.safetensors"
    if not (model.is_file() and (source / SUMMARY).is_file() and (source / "config.json").is_file()):
        return model_card(source)
    config = make_config(read_settings(source / "config.json"))
    kind = tasks()[config.task]
    if issubclass(kind, Perceptron):
        return model_card(source)
    summary = read_summary(source, "evaluated_on", "test_accuracy", "test_loss")
    lines = [("task", f"{config.task}: {kind.title}"), ("method", config.method)]
    lines += [("epochs", f"{config.epochs}, seed {config.seed}")]
    accuracy = f"{100 * summary['test_accuracy']:.2f} % (last epoch, loss {summary['test_loss']:.4f})"
    return [*lines, (f"{summary['evaluated_on']} accuracy", accuracy), *model_card(model)]


def run(options: argparse.Namespace) -> int:
    if options.source is not None:
        lines = _card(options.source)
    else:
        system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
        lines = [("wirebound", __version__), ("torch", torch.__version__), ("python", system), ("kernels", kernels())]
        lines += [("threads", str(torch.get_num_threads())), *backends()]
        lines += [(f"data {status.name}", f"{status.state}: {status.where}") for status in datasets.status()]
    table = Table(show_header=False, box=None, pad_edge=False)
    for what, text in lines:
        table.add_row(what, text)
    Console(soft_wrap=True, highlight=False, markup=False).print(table)
    return 0
