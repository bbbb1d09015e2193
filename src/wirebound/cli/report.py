"""``wirebound report``: run folders as one HTML page that opens from disk."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wirebound.report import find_runs, write_report


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="make one HTML page of run folders",
        description="Make one HTML page of run folders that opens from disk: curves, connections, rewiring, settings.",
        epilog="example: wirebound report runs/x runs/y --out page.html",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="run folders, or folders that hold some")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="page to write (default: report.html)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    print(f"report: {write_report(find_runs(options.folders), options.out)}")
    return 0
