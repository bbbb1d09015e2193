"""Runs trials side by side on this machine, wherever they come from."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.resume import stored_settings
from wirebound_lab.sweep.job import Job
from wirebound_lab.sweep.outcome import FAILED, FINISHED, INTERRUPTED, Outcome
from wirebound_lab.sweep.plan import Trial, key_of

_POLL = 0.1  # seconds
_TIME_TO_STOP = 60.0  # seconds that trials have to write a checkpoint after Ctrl-C

Listener = Callable[[list[str]], None]


class Source(Protocol):
    """Where trials come from and where their outcomes go."""

    def take(self) -> Trial | None:
        """The next trial for this machine, or None if there is none now."""

    def done(self, trial: Trial, outcome: Outcome) -> None: ...

    def alive(self, trials: list[Trial]) -> None:
        """Called now and then with the trials that run."""


def drive(source: Source, out: Path, jobs: int, listener: Listener) -> None:
    """Run what ``source`` gives, ``jobs`` at a time, until it has nothing more and all have ended."""
    running: list[Job] = []
    with tempfile.TemporaryDirectory(prefix="wirebound-sweep-") as scratch:
        try:
            while True:
                while len(running) < jobs and (trial := source.take()) is not None:
                    running.append(Job(trial, free_folder(out, trial), Path(scratch)))
                listener([job.folder.name for job in running])
                if not running:
                    return
                time.sleep(_POLL)
                source.alive([job.trial for job in running])
                for job in list(running):
                    outcome = job.poll()
                    if outcome is not None:
                        running.remove(job)
                        _settle(source, out, job, outcome)
        except KeyboardInterrupt:
            for job in running:
                job.interrupt()
            deadline = time.monotonic() + _TIME_TO_STOP
            for job in running:
                job.end(max(0.0, deadline - time.monotonic()))
                outcome = job.poll()
                finished = outcome is not None and outcome.state == FINISHED
                source.done(job.trial, outcome if finished and outcome else Outcome(INTERRUPTED, folder=str(job.folder)))
            raise
        finally:
            for job in running:
                job.end(0.0)


def _settle(source: Source, out: Path, job: Job, outcome: Outcome) -> None:
    failed = out / "failed" / f"{job.folder.name}.txt"
    if outcome.state == FAILED:
        failed.parent.mkdir(exist_ok=True)
        failed.write_text(job.said(), encoding="utf-8")
    elif failed.exists():
        failed.unlink()
    source.done(job.trial, outcome)


def free_folder(out: Path, trial: Trial) -> Path:
    """The trial's folder; with its key in the name where something else has that name already."""
    folder = out / trial.name
    try:
        stored = stored_settings(folder)
        mine = not folder.exists() if stored is None else key_of(stored) == trial.key
    except ConfigError:
        mine = False
    return folder if mine else out / f"{trial.name}-{trial.key[:8]}"
