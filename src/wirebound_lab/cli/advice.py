"""What to do next after an error, where the error itself does not say."""

from __future__ import annotations

import errno

from wirebound.checkpoint import CheckpointError
from wirebound.distributed import RanksDifferError
from wirebound.engine.modules import DivergedError
from wirebound.export import ExportError
from wirebound.wiring import WiringError
from wirebound_lab.data import DataError, DataUnavailable
from wirebound_lab.report import ReportError
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.launch import RankFailedError
from wirebound_lab.run.record import RunFolderError

_GO_ON = "the same command with --resume goes on from the last checkpoint"
# The first kind that an error is of, in this order: some are kinds of others.
_NEXT: tuple[tuple[type[BaseException], str], ...] = (
    (RunFolderError, "another --out, --resume to go on with a run, or --overwrite to replace it"),
    (CheckpointError, "use an earlier copy of the file, or begin anew with --overwrite"),
    (ReportError, "name folders that `wirebound train --out DIR` has finished, or one that holds some, or experiments"),
    (ExportError, "`wirebound info RUN_OR_MODEL` shows what the file holds; `wirebound export --help` what can be made of it"),
    (DataUnavailable, "`wirebound data list` shows what is there; WIREBOUND_DATA or --data-path names a folder that has it"),
    (DataError, "`wirebound data verify NAME` checks the files, `wirebound data fetch NAME` fetches them anew"),
    (DivergedError, "try a lower --lr, or leave such steps out with --on-nan skip"),
    (RankFailedError, _GO_ON),
    (RanksDifferError, "run `wirebound info` on every machine: versions and kernels must be the same"),
    (WiringError, "this must never happen: please report it, with the output of the same command after --debug"),
)

# Commands that only read what is there: no other setting helps.
_READERS = {
    "info": "name the folder of a run that `wirebound train --out DIR` has finished, or a file that wb.save wrote",
    "refine": "name the folder of a run that `wirebound train --out DIR` has finished",
}


def next_step(error: BaseException, command: str) -> str | None:
    """One line of advice, or None where there is nothing to add."""
    if command == "reproduce" and isinstance(error, RunFolderError):
        return "another --out, or delete the folder that the error names"
    if command in _READERS and isinstance(error, RunFolderError | CheckpointError | ExportError | ConfigError):
        return _READERS[command]
    for kind, text in _NEXT:
        if isinstance(error, kind):
            return text
    if isinstance(error, ConfigError | ValueError):
        return f"`wirebound {command} --help` explains every setting and its values"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"make room on the disk; {_GO_ON}"
    if isinstance(error, PermissionError):
        return "choose a folder that you may write to"
    return None
