"""What to do next after an error, where the error itself does not say. Errors go by name: nothing is imported for it."""

from __future__ import annotations

import errno

_RESUME = "the same command with --resume goes on from the last checkpoint"
# Errors that are neither of a value nor of the system, and still no fault of ours.
FAILURES = ("DivergedError", "RankFailedError", "RanksDifferError", "WiringError")
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
}


def names_of(error: BaseException) -> list[str]:
    """The names of the classes that an error is of."""
    return [kind.__name__ for kind in type(error).__mro__]


def next_step(error: BaseException, command: str) -> str | None:
    """One line of advice, or None where there is nothing to add."""
    names = names_of(error)
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
