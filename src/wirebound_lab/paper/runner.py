"""Runs jobs, some at a time, each once: what is finished is read, what was interrupted goes on.

With one worker the runs are in this process. Ctrl-C then reaches the run itself, which writes a checkpoint; with
several, it is passed on to the workers, which have no terminal of their own.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import torch

from wirebound.engine.modules import DivergedError
from wirebound_lab.paper.figure import Outcomes
from wirebound_lab.paper.job import Job, Summary
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.interrupt import Interrupted
from wirebound_lab.run.record import RunFolderError

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
Say = Callable[[str], None]


@dataclass(frozen=True)
class Ended:
    """How a run ended: with a summary, or why not."""

    summary: Summary | None = None
    diverged: str | None = None
    interrupted: int | None = None  # exit code


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
    for folder, ended in _each(left, runs, workers):
        if ended.interrupted is not None:
            raise Interrupted(
                f"interrupted; {len(found)} of {len(distinct)} runs are finished; the same command goes on", ended.interrupted
            )
        if ended.diverged is not None:
            lost[folder] = ended.diverged
        elif ended.summary is not None:
            found[folder] = ended.summary
        say(f"{len(found) + len(lost):>4}/{len(distinct)}  {folder:<48} {_in_words(ended)}")
    return Outcomes(runs, {folder: found[folder] for folder in distinct if folder in found}, lost)


def _in_words(ended: Ended) -> str:
    if ended.summary is None:
        return f"diverged: {ended.diverged}"
    summary, parts = ended.summary, []
    if isinstance(summary.get("test_accuracy"), float):
        parts.append(f"{100 * summary['test_accuracy']:6.2f} %")
    if isinstance(summary.get("seconds"), float):
        parts.append(f"{summary['seconds']:7.1f} s")
    return "  ".join(parts) or "done"


def _each(jobs: Mapping[str, Job], runs: Path, workers: int) -> Iterator[tuple[str, Ended]]:
    """(folder, how it ended) of each run, as it comes to an end."""
    if workers == 1 or len(jobs) <= 1:
        for folder, job in jobs.items():
            yield folder, work(job, runs / folder)
        return
    # Started afresh: a fork of a process whose torch has threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=min(workers, len(jobs)), mp_context=context, initializer=_begin) as pool:
        waiting = {pool.submit(work, job, runs / folder): folder for folder, job in jobs.items()}
        stopped = False
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except KeyboardInterrupt:
            stopped = True
            running = _stop(waiting)
            # All of them, before anyone is told: a second signal would cut a checkpoint short that is being written.
            yield from [(waiting[future], future.result()) for future in running]
            yield "", Ended(interrupted=128 + signal.SIGINT)
        finally:
            if not stopped:
                _stop(waiting)  # of no effect unless something went wrong


def _stop(waiting: Mapping[Future[Ended], str]) -> list[Future[Ended]]:
    """Begin no more, and let those that run write their checkpoints; returns all that were begun and are not done."""
    running = [future for future in waiting if not future.done() and not future.cancel()]
    for child in multiprocessing.active_children() if running else ():
        if child.pid is not None:
            os.kill(child.pid, signal.SIGINT)
    return running


_working = _stopped = False


def work(job: Job, path: Path) -> Ended:
    """One run on one thread."""
    global _working, _stopped
    if _stopped:
        return Ended(interrupted=128 + signal.SIGINT)
    torch.set_num_threads(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _working = True
        return Ended(job.run(path))
    except DivergedError as error:
        return Ended(diverged=str(error))
    except KeyboardInterrupt as error:
        _stopped = multiprocessing.parent_process() is not None
        return Ended(interrupted=error.code if isinstance(error, Interrupted) else 128 + signal.SIGINT)
    finally:
        _working = False


def _begin() -> None:
    """In a new worker: out of reach of the terminal's Ctrl-C, which the parent passes on, and ended with the parent."""
    os.setpgrp()
    signal.signal(signal.SIGINT, _note)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _note(number: int, frame: object) -> None:
    """Ctrl-C between two runs: what waits is not begun. While a run trains, it has a handler of its own."""
    global _stopped
    _stopped = True
    if _working:
        raise KeyboardInterrupt
