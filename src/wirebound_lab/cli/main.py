"""Finds the subcommand, and turns errors into one clear line, one of advice, and an exit code.

Exit codes: 0 done, 1 the work failed, 2 the command line or a setting is wrong, 130 interrupted. A command's module is
imported when it is called: help and reports need no torch.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from wirebound_lab.cli.advice import FAILURES, names_of, next_step

# Each has a module in this folder with ``add_arguments(parser, arguments)``.
COMMANDS = {
    "train": "train a network inside a budget of connections",
    "sweep": "train over a grid of settings and seeds, or search",
    "refine": "refine the allocation of a finished run by what it converged to",
    "reproduce": "rerun figures of the paper",
    "demo": "train MNIST at 1 %% connectivity and write a report",
    "report": "make one HTML page of run folders and reproduced figures",
    "export": "write a trained network for SciPy, ONNX, NIR, PyNN or C",
    "bench": "measure speed and memory on this machine",
    "data": "list, fetch and verify data sets",
    "info": "what is installed, or what a run folder or a model's file holds",
    "completion": "completion of this command for bash, zsh or fish",
}
_EXTRA = ("rich", "shtab", "sklearn", "PIL", "tomli", "optuna", "soundfile")  # what wirebound[lab] brings


def build_parser(arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of a command line; without one, with the options of all commands."""
    try:
        installed = version("wirebound")
    except PackageNotFoundError:
        installed = "unknown"
    parser = argparse.ArgumentParser(
        prog="wirebound",
        description="Train neural networks inside a strict budget of connections, by deep rewiring (DEEP R).",
        epilog="`wirebound COMMAND --help` explains each. First steps: `wirebound demo`, then `wirebound train --data "
        "digits --connectivity 0.05 --out runs/first` and `wirebound report runs/first`.",
    )
    debug = {"action": "store_true", "help": "show the traceback of an error"}
    parser.add_argument("--version", action="version", version=f"wirebound {installed}")
    parser.add_argument("--debug", **debug)  # type: ignore[arg-type]
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    called = None if arguments is None else next((word for word in arguments if not word.startswith("-")), "")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if called in (None, name):
            importlib.import_module(f"wirebound_lab.cli.{name}").add_arguments(command, arguments or ())
            command.add_argument("--debug", default=argparse.SUPPRESS, **debug)  # type: ignore[arg-type]
    return parser


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
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = build_parser(given).parse_args(given)
        options.own_process = arguments is None
        _show_lines()
        code: int = options.run(options)
        return code
    except KeyboardInterrupt as error:
        print(f"wirebound: {error if str(error) else 'interrupted'}", file=sys.stderr)
        return getattr(error, "code", 130)
    except BrokenPipeError:
        return 0
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA or "--debug" in given:
            raise
        print(f"wirebound: this command needs the package {error.name}: pip install 'wirebound[lab]'", file=sys.stderr)
        return 2
    except Exception as error:
        expected = isinstance(error, ValueError | OSError) or set(names_of(error)) & set(FAILURES)
        if not expected or "--debug" in given:
            raise
        print(f"wirebound: {error}", file=sys.stderr)
        advice = next_step(error, next((word for word in given if word in COMMANDS), ""))
        if advice is not None:
            print(f"next: {advice}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1


if __name__ == "__main__":
    sys.exit(main())
