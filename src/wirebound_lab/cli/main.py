"""Finds the subcommand, and turns errors into one clear line, one of advice, and an exit code.

Exit codes: 0 done, 1 the work failed, 2 the command line or a setting is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from rich.console import Console

from wirebound.distributed import RanksDifferError
from wirebound.engine.modules import DivergedError
from wirebound.version import __version__
from wirebound.wiring import WiringError
from wirebound_lab.cli import bench, completion, data, demo, export, info, refine, report, reproduce, sweep, train
from wirebound_lab.cli.advice import next_step
from wirebound_lab.data import DataError, DataUnavailable
from wirebound_lab.report import ReportError
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.launch import RankFailedError
from wirebound_lab.run.record import RunFolderError

_WRONG_INPUT = (ConfigError, RunFolderError, ReportError, DataError)
_FAILED = (DataUnavailable, DivergedError, RankFailedError, RanksDifferError, WiringError, OSError)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wirebound",
        description="Train neural networks inside a strict budget of connections, by deep rewiring (DEEP R).",
        epilog="`wirebound COMMAND --help` explains each. First steps: `wirebound demo`, then `wirebound train --data "
        "digits --connectivity 0.05 --out runs/first` and `wirebound report runs/first`.",
    )
    parser.add_argument("--version", action="version", version=f"wirebound {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (train, sweep, refine, reproduce, demo, report, export, bench, data, info, completion):
        module.add_parser(commands)
    _accept_debug(commands)
    return parser


def _accept_debug(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """--debug is as good after the command as before it."""
    for parser in commands.choices.values():
        parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error")


class _Lines(logging.Handler):
    """What is said while data is fetched, as lines of the error output."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


def _show_lines() -> None:
    log = logging.getLogger("wirebound_lab.data")
    log.setLevel(logging.INFO)
    if not any(isinstance(handler, _Lines) for handler in log.handlers):
        log.addHandler(_Lines())


def main(arguments: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    _show_lines()
    errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    try:
        code: int = options.run(options)
        return code
    except KeyboardInterrupt:
        errors.print("wirebound: interrupted")
        return 130
    except BrokenPipeError:
        return 0
    except (*_WRONG_INPUT, *_FAILED, ValueError) as error:
        if options.debug:
            raise
        errors.print(f"wirebound: {error}")
        advice = next_step(error, options.command)
        if advice is not None:
            errors.print(f"next: {advice}")
        return 2 if isinstance(error, ValueError) else 1


if __name__ == "__main__":
    sys.exit(main())
