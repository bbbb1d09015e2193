"""The run folder: what a run writes, and how nothing half written is ever taken for a run.

A run works in ``NAME.partial`` and the folder gets its name when it is complete, so a folder ``NAME`` is always a
finished run: ``config.json``, ``metrics.jsonl``, ``summary.json`` and ``model.safetensors``. Until then there may be a
``checkpoint.safetensors`` in its place, from which the run can go on.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn

from wirebound.checkpoint import WriteError, save
from wirebound.checkpoint.atomic import SUFFIX, lock, same_file, sync_folder, write_file

METRICS = "metrics.jsonl"
FINISHED = ("config.json", METRICS, "model.safetensors", "summary.json")
CHECKPOINT = "checkpoint.safetensors"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RunFolderError(ValueError):
    """The folder cannot be used for a run; the message says why and what to do."""


class RunFolder:
    """A run folder while it is being written; use it as a context manager and call ``finish``.

    Args:
        path: NAME; what exists there is refused, unless
        overwrite: it is a run that may be replaced, or
        resume: it is an unfinished run that goes on.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, resume: bool = False) -> None:
        self.path = path
        self.resume = resume
        if not path.name:
            raise RunFolderError(f"out (={path}) must name a folder")
        self.partial = path.with_name(path.name + ".partial")
        # os.path, because Path.exists raises for names that are too long and folders that may not be read.
        there = os.path.lexists(path)
        wrong = ""
        if overwrite and resume:
            raise RunFolderError("resume continues a run and overwrite replaces it: pass one of them")
        if there and not os.path.exists(path):
            wrong = " is a link to nowhere: remove it, or choose another name"
        elif there and not (overwrite or resume):
            wrong = f": {path} exists already; choose another name or pass --overwrite"
        elif overwrite and os.path.islink(path):
            wrong = " is a link, so it is not overwritten: name the folder itself"
        elif os.path.lexists(self.partial) and not os.path.isdir(self.partial):
            wrong = f": {self.partial} is in the way and no folder: remove it, or choose another name"
        elif os.path.lexists(self.partial) and not (overwrite or resume):
            wrong = f": {self.partial} holds an unfinished run; go on with --resume, replace it with --overwrite, or choose another name"
        elif there and not os.path.exists(path / "config.json"):
            wrong = f" is not a run folder, so it is not {'resumed' if resume else 'overwritten'}"
        if wrong:
            raise RunFolderError(f"out (={path}){wrong}")

    @property
    def finished(self) -> bool:
        """Whether the run has already ended, and at most its folder still waits for its name."""
        return self.resume and (os.path.exists(self.path) or os.path.exists(self.partial / "summary.json"))

    @property
    def checkpoint(self) -> Path:
        return self.partial / CHECKPOINT

    def __enter__(self) -> RunFolder:
        try:
            self.partial.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.partial, os.O_RDONLY)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            self._claim()
            self._try_names()
            if not self.resume:
                for old in self.partial.iterdir():
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            # Nothing is cut off before the checkpoint is known to be good: see rewind.
            self._metrics = (self.partial / METRICS).open("a+b")
        except OSError as error:
            os.close(self._descriptor)
            with contextlib.suppress(OSError):
                self.partial.rmdir()  # if it holds nothing
            if error.errno in _NO_ROOM:
                raise WriteError(f"{self.partial} cannot be written: {error.strerror or error}") from error
            raise self._unusable(error) from error
        except RunFolderError:
            os.close(self._descriptor)
            raise
        self._epochs = 0
        self._texts: dict[str, bytes] = {}  # of the small files, by name
        return self

    def _try_names(self) -> None:
        """What is only written later must be possible now: the longest name in the folder, and its own last name."""
        longest = self.partial / (CHECKPOINT + SUFFIX)
        left = os.path.lexists(longest)  # by a run that was killed
        longest.touch()
        if not left:
            longest.unlink()
        # Where the folder gets its name at the end.
        if not os.access(self.path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def _unusable(self, error: OSError) -> RunFolderError:
        reason = error.strerror or error
        return RunFolderError(f"out (={self.path}) cannot be made: {reason}; choose a place that can be written")

    def _claim(self) -> None:
        """One process at a time; the claim ends with the process, however it ends."""
        if not lock(self._descriptor):
            raise RunFolderError(f"out (={self.path}): another process is training in {self.partial}; wait for it, or choose another name")
        # It may have been another's until a moment ago, and may have got its final name since.
        if not same_file(self._descriptor, self.partial):
            raise RunFolderError(f"out (={self.path}) was finished by another process just now")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):  # a full disk has been reported already
            self._metrics.close()
        nothing = kind is not None and not self.resume and self._epochs == 0 and not self.checkpoint.exists()
        if nothing and same_file(self._descriptor, self.partial):  # else it is someone else's by now
            shutil.rmtree(self.partial, ignore_errors=True)
        os.close(self._descriptor)

    # What is written

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        self._texts[name] = (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
        write_file(self.partial / name, self._texts[name])

    def metric(self, kind: str, **values: Any) -> None:
        """Append one line to ``metrics.jsonl``."""
        try:
            self._metrics.write(json.dumps({"kind": kind, **values}).encode() + b"\n")
            if kind == "epoch":
                self._epochs += 1
                self._metrics.flush()
        except OSError as error:
            raise self._failed(error) from error

    def position(self) -> int:
        """Bytes of ``metrics.jsonl`` so far, all of them on disk."""
        self._mend()
        try:
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise self._failed(error) from error
        return self._metrics.tell()

    def _mend(self) -> None:
        """Files that someone deleted or moved while the run trains are written again; without its folder it ends."""
        if not same_file(self._descriptor, self.partial):
            raise WriteError(f"{self.partial} was deleted or moved while the run was writing in it: start the run again")
        for name, content in self._texts.items():
            if not os.path.isfile(self.partial / name):
                write_file(self.partial / name, content)
        if same_file(self._metrics.fileno(), self.partial / METRICS):
            return
        try:
            self._metrics.flush()
            self._metrics.seek(0)  # the file has no name any more, but is still ours to read
            with self._metrics as old:
                write_file(self.partial / METRICS, old.read())
            self._metrics = (self.partial / METRICS).open("a+b")
            self._metrics.seek(0, os.SEEK_END)
        except OSError as error:
            raise self._failed(error) from error

    def rewind(self, position: int) -> None:
        """Forget what was recorded after a checkpoint: it will be recorded again."""
        held = os.fstat(self._metrics.fileno()).st_size
        if held < position:
            said = f"holds {held} bytes, but the checkpoint counts {position}: it was changed; start the run again with --overwrite"
            raise RunFolderError(f"{self.partial / METRICS} {said}")
        self._metrics.truncate(position)
        self._metrics.seek(position)

    def finish(self, summary: dict[str, Any], model: nn.Module, card: dict[str, Any] | None = None) -> None:
        """Write what is left and give the folder its name; ``card`` goes into the model's file."""
        self.position()
        save(self.partial / "model.safetensors", model=model, extra=card)
        self.write_json("summary.json", summary)  # the last: with it, the run is complete
        self._mend()
        self.give_name()

    def give_name(self) -> None:
        """The last act, which a resumed run can repeat: what is no part of a finished run goes, and it is named."""
        try:
            for file in self.partial.iterdir():
                if file.name not in FINISHED:
                    file.unlink()
            missing = [name for name in FINISHED if not os.path.isfile(self.partial / name)]
            if missing:
                raise WriteError(f"{self.partial} lacks {', '.join(missing)}: someone deleted it; start the run again with --overwrite")
            if self.path.exists():
                shutil.rmtree(self.path)
            os.replace(self.partial, self.path)
            sync_folder(self.path.parent)
        except WriteError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> WriteError:
        reason, advice = error.strerror or error, f"make room, then go on with --resume --out {self.path}"
        return WriteError(f"{self.partial} cannot be written ({reason}): {advice}")
