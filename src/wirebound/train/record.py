"""The run folder: what a run writes, and how nothing half written is left behind.

A run works in ``NAME.partial`` and the folder gets its name when it is complete, so a folder ``NAME`` is always a
finished run: ``config.json``, ``metrics.jsonl``, ``summary.json`` and ``model.safetensors``.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors.torch import save_file
from torch import nn


class RunFolderError(ValueError):
    """The folder cannot be used for a run; the message says why and what to do."""


class RunFolder:
    """A run folder while it is being written; use it as a context manager and call ``finish``."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        if not path.name:
            raise RunFolderError(f"out (={path}) must name a folder")
        for existing in (path, self.partial):
            if existing.exists() and not overwrite:
                what = "exists already" if existing == path else "holds an unfinished run"
                raise RunFolderError(f"out (={path}): {existing} {what}; choose another name or pass --overwrite")
        if overwrite and path.exists() and not (path / "config.json").exists():
            raise RunFolderError(f"out (={path}) is not a run folder, so it is not overwritten")

    def __enter__(self) -> RunFolder:
        if self.partial.exists():
            shutil.rmtree(self.partial)
        try:
            self.partial.mkdir(parents=True)
        except OSError as error:
            raise RunFolderError(f"out (={self.path}) cannot be made: {error}") from error
        self._metrics = (self.partial / "metrics.jsonl").open("w", encoding="utf-8")
        self._epochs = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metrics.close()
        if kind is not None and self._epochs == 0:
            shutil.rmtree(self.partial, ignore_errors=True)  # nothing worth keeping came about

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        (self.partial / name).write_text(text, encoding="utf-8")

    def metric(self, kind: str, **values: Any) -> None:
        """Append one line to ``metrics.jsonl``."""
        self._metrics.write(json.dumps({"kind": kind, **values}) + "\n")
        if kind == "epoch":
            self._epochs += 1
            self._metrics.flush()

    def finish(self, summary: dict[str, Any], model: nn.Module) -> None:
        """Write what is left and give the folder its name."""
        self._metrics.flush()
        state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(state, self.partial / "model.safetensors", metadata={"format": "pt", "writer": "wirebound"})
        self.write_json("summary.json", summary)
        for file in self.partial.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        if self.path.exists():
            shutil.rmtree(self.path)
        os.replace(self.partial, self.path)
