"""``wirebound data``: what data sets there are, fetching and checking them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from wirebound_lab import data as datasets


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.description = (
        "Data sets are looked for in WIREBOUND_DATA, then in the user cache, then fetched; every file is checked by size "
        "and sha256."
    )
    parser.epilog = "example: wirebound data fetch mnist"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="what data sets there are, and where they were found")
    listing.set_defaults(run=run_list)
    for action, run, text in (
        ("fetch", run_fetch, "find data sets or fetch them into the user cache"),
        ("verify", run_verify, "check the files of data sets against their checksums"),
    ):
        one = actions.add_parser(action, help=text)
        one.add_argument("names", nargs="+", metavar="NAME", choices=datasets.names(), help=", ".join(datasets.names()))
        one.set_defaults(run=run)


def run_list(options: argparse.Namespace) -> int:
    table = Table("data set", "state", "where", box=None, pad_edge=False)
    for status in datasets.status():
        table.add_row(status.name, status.state, str(status.where))
    Console(soft_wrap=True).print(table)
    return 0


def run_fetch(options: argparse.Namespace) -> int:
    for name in options.names:
        print(f"{name}: {datasets.fetch(name)}")
    return 0


def run_verify(options: argparse.Namespace) -> int:
    for name in options.names:
        print(f"{name}: {datasets.verify(name)}")
    return 0
