"""One run that a figure needs: known by its folder, done once, continued where it was interrupted."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.run.resume import check_same_run

Summary = dict[str, Any]


class Job(ABC):
    """A run. It travels to another process, so it must be picklable."""

    folder: str  # below DIR/runs, as in "mnist/deep-r-0.01-s0"; figures that name the same folder share the run

    @abstractmethod
    def run(self, path: Path) -> Summary:
        """Do it, from where an earlier start left off, and leave ``summary.json`` in ``path``; returns its content."""

    @abstractmethod
    def finished(self, path: Path) -> Summary | None:
        """The summary of the run in ``path`` if it has ended; an error if a run of other settings has its name."""

    def begun(self, path: Path) -> bool:
        """Whether an earlier start left something."""
        return path.exists() or path.with_name(path.name + ".partial").exists()


@dataclass(frozen=True)
class TrainJob(Job):
    """A run of ``wirebound train``."""

    folder: str
    config: TrainConfig

    def run(self, path: Path) -> Summary:
        return train(self.config, path, resume=True).summary

    def finished(self, path: Path) -> Summary | None:
        check_same_run(self.config, path)
        return read_summary(path)


def read_summary(path: Path) -> Summary | None:
    """``summary.json`` of a run folder, None if there is none yet."""
    file = path / "summary.json"
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise RunFolderError(f"{file} must hold one object")
    return found
