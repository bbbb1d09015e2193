"""The runs that figures need, each known by its folder and done once: finished ones are read, interrupted ones resumed.

With one worker the runs are in this process. Ctrl-C then reaches the run itself, which writes a checkpoint; with
several, it is passed on to the children, which have no terminal of their own.
"""

import json
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from wirebound.engine.modules import DivergedError
from wirebound_lab.run import RunConfig, train
from wirebound_lab.run.branch import Trunk, branch_off
from wirebound_lab.run.config import ConfigError, tasks
from wirebound_lab.run.processes import Child, Interrupted, in_words, keep_freed_memory, run_pool
from wirebound_lab.run.record import SUMMARY, RunFolderError
from wirebound_lab.run.record import read_summary as read_summary_file
from wirebound_lab.run.resume import check_same_run

Summary = dict[str, Any]
Say = Callable[[str], None]


class Job(ABC):
    """A run. It travels to another process, so it must be picklable."""

    folder: str  # below DIR/runs, as in "mnist/deep-r-0.01-s0"; figures that name the same folder share the run

    @abstractmethod
    def run(self, path: Path) -> Summary:
        """Do it, from where an earlier start left off, and leave ``summary.json`` in ``path``; returns its content."""

    @abstractmethod
    def finished(self, path: Path) -> Summary | None:
        """The summary of the run in ``path`` if it has ended; an error if a run of other settings has its name."""


@dataclass(frozen=True)
class TrainJob(Job):
    """A run of ``wirebound train``, of any task."""

    folder: str
    config: RunConfig
    trunk: Trunk | None = None  # epochs that it shares with others

    def run(self, path: Path) -> Summary:
        if tasks()[self.config.task].large_batches:
            keep_freed_memory()
        if self.trunk is not None:
            branch_off(self.trunk, self.config, path)
        return train(self.config, path, resume=True).summary

    def finished(self, path: Path) -> Summary | None:
        check_same_run(self.config, path)
        return read_summary(path)


def read_summary(path: Path) -> Summary | None:
    """``summary.json`` of a run folder, None if there is none yet."""
    return read_summary_file(path) if (path / SUMMARY).exists() else None


def core_seconds(summary: Summary) -> float:
    """What a run took of one core: its own processor time, or the clock's, which other work makes longer, where a run of
    several sittings has no other."""
    return float(summary.get("cpu_seconds") or summary.get("seconds", 0.0))


@dataclass(frozen=True)
class Outcomes:
    """Some runs by their folder: summaries of those that ended, reasons of those that diverged."""

    runs: Path  # DIR/runs
    summaries: Mapping[str, Summary]
    lost: Mapping[str, str]
    missing: Sequence[str] = ()  # not run yet

    def of(self, jobs: Sequence[Job]) -> list[Summary]:
        """Summaries of those among ``jobs`` that ended."""
        return [self.summaries[job.folder] for job in self.ended(jobs)]

    def ended(self, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in jobs if job.folder in self.summaries]

    def check_all(self) -> None:
        """For who needs every run: an error that names those that diverged."""
        if self.lost:
            raise DivergedError("; ".join(f"{folder}: {why}" for folder, why in self.lost.items()))

    def metrics(self, job: Job, kind: str) -> list[dict[str, Any]]:
        """The records of one kind in ``metrics.jsonl`` of a run that ended, in the order of training."""
        text = (self.runs / job.folder / "metrics.jsonl").read_text(encoding="utf-8")
        return [record for record in map(json.loads, text.splitlines()) if record["kind"] == kind]


def find_finished(jobs: Sequence[Job], runs: Path) -> dict[str, Summary]:
    """Summaries of the runs that have ended; a run of other settings in one of the folders is an error."""
    found = {}
    for job in jobs:
        path = runs / job.folder
        try:
            summary = job.finished(path)
        except (ConfigError, RunFolderError) as error:
            raise RunFolderError(f"{path} holds another run than this figure needs: {error}") from error
        if summary is not None:
            found[job.folder] = summary
    return found


def run_jobs(jobs: Sequence[Job], runs: Path, workers: int, say: Say) -> Outcomes:
    """All these runs, ``workers`` at a time; raises ``Interrupted`` after Ctrl-C, with every run resumable."""
    distinct = {job.folder: job for job in jobs}  # figures share runs, and so may the panels of one
    found = find_finished(list(distinct.values()), runs)
    left = {folder: job for folder, job in distinct.items() if folder not in found}
    lost: dict[str, str] = {}
    say(f"{len(distinct)} runs, {len(found)} of them finished before")

    def ended(folder: str, summary: Summary | None, diverged: str = "") -> None:
        if summary is None:
            lost[folder], said = diverged, f"diverged: {diverged}"
        else:
            found[folder] = summary
            accuracy, seconds = summary.get("test_accuracy"), summary.get("seconds")
            parts = [f"{100 * accuracy:6.2f} %"] if isinstance(accuracy, float) else []
            parts += [f"{seconds:7.1f} s"] if isinstance(seconds, float) else []
            said = "  ".join(parts) or "done"
        say(f"{len(found) + len(lost):>4}/{len(distinct)}  {folder:<48} {said}")

    try:
        if workers == 1 or len(left) <= 1:
            for folder, job in left.items():
                try:
                    _work(job, runs / folder)
                    ended(folder, job.finished(runs / folder))
                except DivergedError as error:
                    ended(folder, None, str(error))
        else:
            _side_by_side(left, runs, workers, ended)
    except KeyboardInterrupt as error:
        code = error.code if isinstance(error, Interrupted) else 128 + signal.SIGINT
        said = f"interrupted; {len(found)} of {len(distinct)} runs are finished; the same command goes on"
        raise Interrupted(said, code) from error
    return Outcomes(runs, {folder: found[folder] for folder in distinct if folder in found}, lost)


def _side_by_side(jobs: Mapping[str, Job], runs: Path, workers: int, ended: Callable[..., None]) -> None:
    waiting: Iterator[tuple[int, str]] = iter(enumerate(jobs))
    with tempfile.TemporaryDirectory(prefix="wirebound-") as notes:

        def take() -> tuple[str, Child] | None:
            for number, folder in waiting:
                return folder, Child(_work, (jobs[folder], runs / folder), Path(notes), str(number))
            return None

        def settle(folder: str, child: Child) -> None:
            error, code = child.error, child.code or 0
            if isinstance(error, DivergedError):
                ended(folder, None, str(error))
            elif code == 0:
                ended(folder, jobs[folder].finished(runs / folder))
            elif not isinstance(error, KeyboardInterrupt) and code not in (-signal.SIGINT, -signal.SIGTERM):
                raise error or RuntimeError(f"{folder} was {in_words(code)}")

        run_pool(take, workers, settle)


def _work(job: Job, path: Path) -> int:
    torch.set_num_threads(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    job.run(path)
    return 0
