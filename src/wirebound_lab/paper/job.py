"""One run that a figure needs: known by its folder, done once, resumed where it was interrupted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirebound_lab.run import RunConfig, train
from wirebound_lab.run.config import tasks
from wirebound_lab.run.processes import keep_freed_memory
from wirebound_lab.run.resume import check_same_run
from wirebound_lab.run.run_files import SUMMARY
from wirebound_lab.run.run_files import read_summary as read_summary_file

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
    """A run of ``wirebound train``, of any task."""

    folder: str
    config: RunConfig

    def run(self, path: Path) -> Summary:
        if tasks()[self.config.task].large_batches:
            keep_freed_memory()
        return train(self.config, path, resume=True).summary

    def finished(self, path: Path) -> Summary | None:
        check_same_run(self.config, path)
        return read_summary(path)


def read_summary(path: Path) -> Summary | None:
    """``summary.json`` of a run folder, None if there is none yet."""
    return read_summary_file(path) if (path / SUMMARY).exists() else None
