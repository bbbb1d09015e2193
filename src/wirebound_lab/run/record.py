"""The run folder: what a run writes and what is read of it, and how nothing half written is ever taken for a run.

A run works in ``NAME.partial`` and the folder gets its name when it is complete, so a folder ``NAME`` is always a
finished run. Until then there may be a ``checkpoint.safetensors`` in its place, from which the run can resume. The files
of a finished run are read as input like any other: values are asked for by name, and checked.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

from torch import nn

from wirebound.checkpoint import WriteError, save
from wirebound.checkpoint.atomic import SUFFIX, lock, same_file, sync_folder, write_file

METRICS = "metrics.jsonl"
FINISHED = ("config.json", METRICS, "model.safetensors", "summary.json")
CHECKPOINT = "checkpoint.safetensors"
SUMMARY = "summary.json"
_LARGEST = 1 << 63
_SHOWN = 60  # letters of a wrong value in an error
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RunFolderError(ValueError):
    """The folder cannot be used for a run; the message says why and what to do."""


class FolderInUse(RunFolderError):
    """Another process is training there."""


class RunFolder:
    """A run folder while it is being written: a context manager, at whose end ``finish`` is called.

    What exists there is refused, unless it is a run that may be replaced (``overwrite``), or resumed.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, resume: bool = False) -> None:
        self.path, self.resume = path, resume
        if not path.name:
            raise RunFolderError(f"out (={path}) must name a folder")
        self.partial = path.with_name(path.name + ".partial")
        self.checkpoint = self.partial / CHECKPOINT
        # os.path, because Path.exists raises for names that are too long and folders that may not be read.
        there, wrong = os.path.lexists(path), ""
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

    def __enter__(self) -> RunFolder:
        try:
            self.partial.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.partial, os.O_RDONLY)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            self._claim()
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

    def _claim(self) -> None:
        """One process at a time, until it ends; what is only written later must be possible now."""
        if not lock(self._descriptor):
            raise FolderInUse(f"out (={self.path}): another process is training in {self.partial}; wait for it, or choose another name")
        # It may have been another's until a moment ago, and may have got its final name since.
        if not same_file(self._descriptor, self.partial):
            raise RunFolderError(f"out (={self.path}) was finished by another process just now")
        longest = self.partial / (CHECKPOINT + SUFFIX)
        left = os.path.lexists(longest)  # by a run that was killed
        longest.touch()
        if not left:
            longest.unlink()
        # Where the folder gets its name at the end.
        if not os.access(self.path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def _unusable(self, error: OSError) -> RunFolderError:
        said = f"out (={self.path}) cannot be made: {error.strerror or error}"
        return RunFolderError(f"{said}; choose a place that can be written")

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with contextlib.suppress(OSError):  # a full disk has been reported already
            self._metrics.close()
        nothing = kind is not None and not self.resume and self._epochs == 0 and not self.checkpoint.exists()
        if nothing and same_file(self._descriptor, self.partial):  # else it is someone else's by now
            shutil.rmtree(self.partial, ignore_errors=True)
        os.close(self._descriptor)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        self._texts[name] = (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
        write_file(self.partial / name, self._texts[name])

    def metric(self, kind: str, **values: Any) -> None:
        """Append one line to ``metrics.jsonl``."""
        with self._writing():
            self._metrics.write(json.dumps({"kind": kind, **values}).encode() + b"\n")
            if kind == "epoch":
                self._epochs += 1
                self._metrics.flush()

    def position(self) -> int:
        """Bytes of ``metrics.jsonl`` so far, all of them on disk."""
        self._mend()
        with self._writing():
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
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
        with self._writing():
            self._metrics.flush()
            self._metrics.seek(0)  # the file has no name any more, but is still ours to read
            with self._metrics as old:
                write_file(self.partial / METRICS, old.read())
            self._metrics = (self.partial / METRICS).open("a+b")
            self._metrics.seek(0, os.SEEK_END)

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
        with self._writing():
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

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except WriteError:
            raise
        except OSError as error:
            said = f"{self.partial} cannot be written ({error.strerror or error})"
            raise WriteError(f"{said}: make room, then go on with --resume --out {self.path}") from error


def is_number(value: Any) -> TypeGuard[float]:
    """Whether this is a finite number that a float holds; a whole number of a thousand digits is none."""
    return math.isfinite(value) if isinstance(value, float) else type(value) is int and abs(value) < _LARGEST


def is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _LARGEST


def _is_layer(value: Any) -> bool:
    match value:
        case {"possible": possible, "initial": initial, "final": final, "shape": [n_out, n_in]}:
            return all(map(is_count, (possible, initial, final, n_out, n_in)))
    return False


def _is_paper(value: Any) -> bool:
    return isinstance(value, dict) and is_number(value.get("accuracy")) and is_count(value.get("epochs"))


def _is_list(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(of, value))


# Of each value that somebody reads: whether it is right, and the rule in words.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("test_accuracy", "test_loss", "seconds", "training_seconds", "connectivity"), (is_number, "a finite number")),
    **dict.fromkeys(("min_active", "max_active", "possible"), (is_count, "a count")),
    **dict.fromkeys(("evaluated_on", "path"), (lambda value: isinstance(value, str), "a text")),
    "steps": (lambda value: is_count(value) and value > 0, "a count above 0"),
    "budget": (lambda value: value is None or is_count(value), "a count or null"),
    "layers": (lambda v: _is_list(v, _is_layer) and bool(v), "a list of layers with shape, possible, initial and final"),
    "ledger": (lambda v: _is_list(v, lambda e: isinstance(e, dict) and is_count(e.get("bytes"))), "a list of parts with their bytes"),
    "paper": (_is_paper, "an object with accuracy and epochs"),
}


def check_summary(found: Any, path: Path, *needed: str) -> dict[str, Any]:
    """``found``, read from ``path``, if each needed value is there and right, and the paper's figure, which some have."""
    if not isinstance(found, dict):
        raise RunFolderError(f"{path} must hold one object, not {_shown(found)}: the file is damaged")
    for name in (*needed, "paper") if "paper" in found else needed:
        fits, rule = _RULES[name]
        if name not in found:
            raise RunFolderError(f"{path} must hold {name!r}: the file is damaged")
        if not fits(found[name]):
            raise RunFolderError(f"{path}: {name} (={_shown(found[name])}) must be {rule}: the file is damaged")
    return found


def read_summary(folder: Path, *needed: str) -> dict[str, Any]:
    """``summary.json`` of a run folder, with the needed values checked."""
    path = folder / SUMMARY
    return check_summary(_read(path, json.loads), path, *needed)


def read_layer_counts(folder: Path) -> list[list[int]]:
    """Connections of each layer after each epoch, as ``metrics.jsonl`` has them."""
    path = folder / METRICS
    records = _read(path, lambda text: [json.loads(line) for line in text.splitlines()])
    epochs: list[list[int]] = []
    for number, record in enumerate(records, start=1):
        if isinstance(record, dict) and record.get("kind") == "epoch":
            counts = record.get("layer_active")
            if not counts or not _is_list(counts, is_count):
                raise RunFolderError(f"{path}, line {number}: layer_active (={_shown(counts)}) must be counts")
            if epochs and len(counts) != len(epochs[0]):
                raise RunFolderError(f"{path}, line {number}: layer_active must have {len(epochs[0])} counts")
            epochs.append(counts)
    return epochs


def _read(path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} cannot be read: {type(error).__name__}: {str(error)[:120]}") from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
