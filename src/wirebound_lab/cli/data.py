"""Data sets are looked for in WIREBOUND_DATA, then in the user cache, then fetched; every file is checked by size and sha256.

example: wirebound data fetch mnist
"""

import argparse

from rich.console import Console
from rich.table import Table

from wirebound_lab import data as datasets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="what data sets there are, and where they were found")
    for action, text in (
        ("fetch", "find data sets or fetch them into the user cache"),
        ("verify", "check the files of data sets against their checksums"),
    ):
        names = datasets.names()
        actions.add_parser(action, help=text).add_argument("names", nargs="+", metavar="NAME", choices=names, help=", ".join(names))


def run(options: argparse.Namespace) -> int:
    if options.action == "list":
        table = Table("data set", "state", "where", box=None, pad_edge=False)
        for status in datasets.status():
            table.add_row(status.name, status.state, str(status.where))
        Console(soft_wrap=True).print(table)
        return 0
    for name in options.names:
        found = datasets.fetch(name) if options.action == "fetch" else datasets.verify(name)
        print(f"{name}: {found.state}, {found.where}")
    return 0
