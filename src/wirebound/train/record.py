"""The run folder: what a run writes, and how nothing half written is ever taken for a run.

A run works in ``NAME.partial`` and the folder gets its name when it is complete, so a folder ``NAME`` is always a
finished run: ``config.json``, ``metrics.jsonl``, ``summary.json`` and ``model.safetensors``. Until then there may be a
``checkpoint.safetensors`` in its place, from which the run can go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from torch import nn

from wirebound.checkpoint import WriteError, save
from wirebound.checkpoint.atomic import lock, same_file, sync_folder, write_file

FINISHED = ("config.json", "metrics.jsonl", "model.safetensors", "summary.json")
CHECKPOINT = "checkpoint.safetensors"


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
        self.partial = path.with_name(path.name + ".partial")
        if not path.name:
            raise RunFolderError(f"out (={path}) must name a folder")
        if overwrite and resume:
            raise RunFolderError("resume continues a run and overwrite replaces it: pass one of them")
        if path.exists() and not (overwrite or resume):
            raise RunFolderError(f"out (={path}): {path} exists already; choose another name or pass --overwrite")
        if self.partial.exists() and not (overwrite or resume):
            raise RunFolderError(
                f"out (={path}): {self.partial} holds an unfinished run; go on with --resume, replace it with "
                "--overwrite, or choose another name"
            )
        if path.exists() and not (path / "config.json").exists():
            verb = "resumed" if resume else "overwritten"
            raise RunFolderError(f"out (={path}) is not a run folder, so it is not {verb}")

    @property
    def finished(self) -> bool:
        """Whether the run has already ended, and at most its folder still waits for its name."""
        return self.resume and (self.path.exists() or (self.partial / "summary.json").exists())

    @property
    def checkpoint(self) -> Path:
        return self.partial / CHECKPOINT

    def __enter__(self) -> RunFolder:
        try:
            self.partial.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.partial, os.O_RDONLY)
        except OSError as error:
            reason = error.strerror or error
            advice = "choose a place that can be written"
            raise RunFolderError(f"out (={self.path}) cannot be made: {reason}; {advice}") from error
        try:
            self._claim()
            if not self.resume:
                for old in self.partial.iterdir():
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            # Nothing is cut off before the checkpoint is known to be good: see rewind.
            self._metrics = (self.partial / "metrics.jsonl").open("ab")
        except OSError as error:
            os.close(self._descriptor)
            raise WriteError(f"{self.partial} cannot be written: {error.strerror or error}") from error
        except RunFolderError:
            os.close(self._descriptor)
            raise
        self._epochs = 0
        return self

    def _claim(self) -> None:
        """One process at a time; the claim ends with the process, however it ends."""
        if not lock(self._descriptor):
            raise RunFolderError(
                f"out (={self.path}): another process is training in {self.partial}; wait for it, or choose another "
                "name"
            )
        # It may have been another's until a moment ago, and may have got its final name since.
        if not same_file(self._descriptor, self.partial):
            raise RunFolderError(f"out (={self.path}) was finished by another process just now")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # a full disk has been reported already
            self._metrics.close()
        if kind is not None and not self.resume and self._epochs == 0 and not self.checkpoint.exists():
            shutil.rmtree(self.partial, ignore_errors=True)  # nothing worth keeping came about
        os.close(self._descriptor)

    # What is written

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"

        def write(stream: BinaryIO) -> None:
            stream.write(text.encode())

        write_file(self.partial / name, write)

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
        try:
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise self._failed(error) from error
        return self._metrics.tell()

    def rewind(self, position: int) -> None:
        """Forget what was recorded after a checkpoint: it will be recorded again."""
        held = os.fstat(self._metrics.fileno()).st_size
        if held < position:
            raise RunFolderError(
                f"{self.partial / 'metrics.jsonl'} holds {held} bytes, but the checkpoint counts {position}: "
                "it was changed; start the run anew with --overwrite"
            )
        self._metrics.truncate(position)
        self._metrics.seek(position)

    def finish(self, summary: dict[str, Any], model: nn.Module, card: dict[str, Any] | None = None) -> None:
        """Write what is left and give the folder its name; ``card`` goes into the model's file."""
        self.position()
        save(self.partial / "model.safetensors", model=model, extra=card)
        self.write_json("summary.json", summary)  # the last: with it, the run is complete
        self.give_name()

    def give_name(self) -> None:
        """The last act, which a resumed run can repeat: what is no part of a finished run goes, and it is named."""
        try:
            for file in self.partial.iterdir():
                if file.name not in FINISHED:
                    file.unlink()
            if self.path.exists():
                shutil.rmtree(self.path)
            os.replace(self.partial, self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> WriteError:
        reason, advice = error.strerror or error, f"make room, then go on with --resume --out {self.path}"
        return WriteError(f"{self.partial} cannot be written ({reason}): {advice}")
