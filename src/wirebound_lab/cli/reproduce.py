"""Rerun figures of the paper. Each writes DIR/NAME/experiment.json, its runs are below DIR/runs; DIR/RESULTS.md has the
paper's claims beside what was found, and DIR/page.html shows all of it. Finished runs are never repeated and interrupted
ones are resumed: start the same command again.

example: wirebound reproduce fig1a fig6 --jobs 2 --out runs/reproduce
"""

import argparse
from pathlib import Path

from rich.console import Console

from wirebound_lab.data import DataError
from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.keep import keep_runs, take_over
from wirebound_lab.paper.replication import write_results
from wirebound_lab.paper.reproduce import FIGURES, check_begun, check_numbers, find_figures, keep_experiment, reproduce
from wirebound_lab.report import find_sources, write_report
from wirebound_lab.run.config import ConfigError

_HOLDS = {True: "holds", False: "DOES NOT HOLD", None: "not decided"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("figures", nargs="*", metavar="NAME", help="figures; `--list` shows them")
    parser.add_argument("--all", action="store_true", help="all figures")
    parser.add_argument("--list", action="store_true", help="list figures, claims and rough costs, and stop")
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument("--quick", action="store_true", help="a look in a minute or two: small data, one seed; decides nothing")
    scale.add_argument("--full", action="store_true", help="the paper's own schedule, every point with all seeds")
    parser.add_argument("--seeds", type=int, help="seeds of each run (default: 1 with --quick, else what --list says)")
    parser.add_argument("--resume", action="store_true", help="insist that there is something to go on with")
    parser.add_argument("--finished", action="store_true", help="begin no run: draw from those that are finished")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each (default: 1)")
    what = "keep settings, summaries and curves of finished runs in KEPT, and take over those that are there"
    parser.add_argument("--keep", type=Path, metavar="KEPT", help=what)
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"), help="folder to write (default: runs/reproduce)")


def run(options: argparse.Namespace) -> int:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    scale = Scale.QUICK if options.quick else Scale.FULL if options.full else Scale.FITTED
    if options.list:
        for figure in FIGURES.values():
            costs = ", ".join(f"{s.value} {figure.costs[s]}" for s in Scale)
            console.print(f"{figure.name:<8} {figure.title} ({figure.paper})\n         {figure.claim}")
            console.print(f"         {figure.seeds} seed(s); on one core: {costs}", style="dim")
        return 0
    if options.all == bool(options.figures):
        raise ConfigError(f"give names of figures or --all, one of them; known are {', '.join(FIGURES)}")
    figures = find_figures(list(FIGURES) if options.all else options.figures, FIGURES)
    check_numbers(options.seeds, options.jobs)
    if options.resume:
        check_begun(figures, scale, options.seeds, options.out)
    if options.keep and (taken := take_over(options.keep / "runs", options.out / "runs")):
        console.print(f"{taken} finished runs taken over from {options.keep}")
    lacking: list[str] = []

    def say(words: str) -> None:
        console.print(words)
        if options.keep:  # at every line, which a run has at its end: a campaign may be cut off at any time
            keep_runs(options.out / "runs", options.keep / "runs")

    for figure in figures:
        console.print(f"{figure.name}: {figure.title}")
        try:
            where = (options.seeds, options.out, options.jobs)
            experiment = reproduce(figure, scale, *where, say, finished=options.finished)
        except DataError as error:
            if len(figures) == 1:
                raise
            lacking.append(figure.name)  # the other figures may have other data
            console.print(f"  not run: {error}")
            continue
        write_results(options.out, FIGURES)  # after each: a later figure may be interrupted
        if options.keep:
            keep_experiment(options.out, options.keep, figure)
        for found in experiment["findings"]:
            console.print(f"  {_HOLDS[found['holds']]}: {found['claim']}")
            console.print(f"    paper: {found['paper']}; ours: {found['ours']}", style="dim")
        console.print(f"  written: {options.out / figure.name / 'experiment.json'}")
    if len(lacking) == len(figures):
        raise DataError(f"none of {', '.join(lacking)} could be run: see above which data each lacks")
    console.print(f"claims and findings: {options.out / 'RESULTS.md'}")
    sources = find_sources([options.out])
    console.print(f"page: {write_report(sources.runs, options.out / 'page.html', sources.experiments)}")
    if lacking:
        console.print(f"not run for lack of data: {', '.join(lacking)}; `wirebound data list` says what is missing")
    return 1 if lacking else 0
