"""Make one HTML page that opens from disk. Of run folders: curves, connections, rewiring, settings. Of what wirebound
reproduce wrote: each figure with the paper's claims and what came of them, and the runs worth a look.

example: wirebound report runs/x runs/y --out page.html
"""

import argparse
from pathlib import Path

from wirebound_lab.report import find_sources, write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs or experiments")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="page to write (default: report.html)")


def run(options: argparse.Namespace) -> int:
    sources = find_sources(options.folders)
    print(f"report: {write_report(sources.runs, options.out, sources.experiments)}")
    return 0
