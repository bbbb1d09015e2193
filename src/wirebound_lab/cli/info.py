"""``wirebound info``: what is installed, which kernels are in use, where data is; or the card of a model."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from wirebound.ops import library
from wirebound.version import __version__
from wirebound_lab import data as datasets
from wirebound_lab.run.card import model_card


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.description = (
        "Versions, the kernels and threads in use, and where each data set was found: what to look at first, and what to "
        "put into a report of a fault. With a run folder or a model's file: its card."
    )
    parser.add_argument("source", nargs="?", type=Path, metavar="RUN_OR_MODEL", help="a run folder, or a model's file")
    parser.set_defaults(run=run)


def kernels() -> str:
    """Which kernels run, in plain words."""
    isa = library.isa()
    if isa is not None:
        return f"native C++, instruction set {isa}"
    return f"pure torch, slower; the native kernels {library.reason()}"


def run(options: argparse.Namespace) -> int:
    table = Table(show_header=False, box=None, pad_edge=False)
    if options.source is not None:
        for what, text in model_card(options.source):
            table.add_row(what, text)
        Console(soft_wrap=True, highlight=False, markup=False).print(table)
        return 0
    table.add_row("wirebound", __version__)
    table.add_row("torch", torch.__version__)
    table.add_row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    table.add_row("kernels", kernels())
    table.add_row("threads", str(torch.get_num_threads()))
    for status in datasets.status():
        table.add_row(f"data {status.name}", f"{status.state}: {status.where}")
    Console(soft_wrap=True, highlight=False).print(table)
    return 0
