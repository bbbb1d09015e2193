"""Finds the subcommand, and turns errors into one clear line, one of advice, and an exit code.

Exit codes: 0 done, 1 the work failed, 2 the command line or a setting is wrong, 130 interrupted. A command's module is
imported when it is called: help and reports need no torch. Its docstring is the command's help, and ends with an example.
"""

import argparse
import errno
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

# Each has a module in this folder with ``add_arguments(parser)`` and ``run(options)``.
COMMANDS = {
    "train": "train a network inside a budget of connections",
    "sweep": "train over a grid of settings and seeds, or search",
    "refine": "refine the allocation of a finished run by what it converged to",
    "reproduce": "rerun figures of the paper",
    "demo": "train MNIST at 1 %% connectivity and write a report",
    "report": "make one HTML page of run folders and reproduced figures",
    "circuit": "make one HTML page to walk through the connections of a network",
    "export": "write a trained network for SciPy, ONNX, NIR, PyNN or C",
    "device": "write a C library that trains a network on a microcontroller, or train on an emulated one",
    "bench": "measure speed and memory on this machine",
    "data": "list, fetch and verify data sets",
    "info": "what is installed, or what a run folder or a model's file holds",
    "completion": "completion of this command for bash, zsh or fish",
}
_EXTRA = ("rich", "shtab", "sklearn", "PIL", "tomli")  # what wirebound[lab] brings

# What to do next after an error that does not say it. Errors go by the names of their classes: nothing is imported for it.
_RESUME = "the same command with --resume goes on from the last checkpoint"
# Errors that are neither of a value nor of the system, and still no fault of ours.
FAILURES = ("DeviceError", "DivergedError", "RankFailedError", "RanksDifferError", "WiringError")
# The first kind that an error is of, in this order: some are kinds of others.
_NEXT = {
    "RunFolderError": "another --out, --resume to go on with a run, or --overwrite to replace it",
    "CheckpointError": "use an earlier copy of the file, or begin again with --overwrite",
    "ReportError": "name folders that `wirebound train --out DIR` has finished, or one that holds some, or experiments",
    "ExportError": "`wirebound info RUN_OR_MODEL` shows what the file holds; `wirebound export --help` what can be made of it",
    "DataUnavailable": "`wirebound data list` shows what is there; WIREBOUND_DATA or --data-path names a folder that has it",
    "DataError": "`wirebound data verify NAME` checks the files, `wirebound data fetch NAME` fetches them again",
    "DivergedError": "try a lower --lr, or leave such steps out with --on-nan skip",
    "RankFailedError": _RESUME,
    "RanksDifferError": "run `wirebound info` on every machine: versions and kernels must be the same",
    "WiringError": "this must never happen: please report it, with the output of the same command after --debug",
}
# Commands that only read what is there: no other setting helps.
_READERS = {
    "info": "name the folder of a run that `wirebound train --out DIR` has finished, or a file that wb.save wrote",
    "refine": "name the folder of a run that `wirebound train --out DIR` has finished",
    "circuit": "name the folder of a run that `wirebound train --out DIR` has finished",
}


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
            if name in ("train", "sweep"):
                importlib.import_module("wirebound_lab.cli.settings").load_methods(arguments or ())
            module = importlib.import_module(f"wirebound_lab.cli.{name}")
            command.description, _, command.epilog = (module.__doc__ or "").rpartition("\n\n")
            command.set_defaults(run=module.run)
            module.add_arguments(command)
            command.add_argument("--debug", default=argparse.SUPPRESS, **debug)  # type: ignore[arg-type]
    return parser


class _Lines(logging.Handler):
    """What is said while data is fetched, as lines of the error output."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


def _names_of(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__]


def next_step(error: BaseException, command: str) -> str | None:
    """One line of advice, or None where there is nothing to add."""
    names = _names_of(error)
    if command == "reproduce" and "RunFolderError" in names:
        return "another --out, or delete the folder that the error names"
    if command in _READERS and {"RunFolderError", "CheckpointError", "ExportError", "ConfigError"} & set(names):
        return _READERS[command]
    for kind, text in _NEXT.items():
        if kind in names:
            return text
    if isinstance(error, ValueError):
        return f"`wirebound {command} --help` explains every setting and its values"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"make room on the disk; {_RESUME}"
    return "choose a folder that you may write to" if isinstance(error, PermissionError) else None


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        # Read when torch is loaded. Its threads would otherwise spin after each operation, on the cores that the kernels need.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        options = build_parser(given).parse_args(given)
        options.own_process = arguments is None
        log = logging.getLogger("wirebound_lab.data")
        log.setLevel(logging.INFO)
        if not any(isinstance(handler, _Lines) for handler in log.handlers):
            log.addHandler(_Lines())
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
        expected = isinstance(error, ValueError | OSError) or set(_names_of(error)) & set(FAILURES)
        if not expected or "--debug" in given:
            raise
        print(f"wirebound: {error}", file=sys.stderr)
        advice = next_step(error, next((word for word in given if word in COMMANDS), ""))
        if advice is not None:
            print(f"next: {advice}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
