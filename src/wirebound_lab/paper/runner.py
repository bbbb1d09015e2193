"""Runs jobs, some at a time, each once: what is finished is read, what was interrupted is resumed.

With one worker the runs are in this process. Ctrl-C then reaches the run itself, which writes a checkpoint; with
several, it is passed on to the children, which have no terminal of their own.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from wirebound.engine.modules import DivergedError
from wirebound_lab.paper.figure import Outcomes
from wirebound_lab.paper.job import Job, Summary
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.interrupt import Interrupted
from wirebound_lab.run.processes import Child, in_words, run_pool
from wirebound_lab.run.record import RunFolderError

Say = Callable[[str], None]


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

    def ended(folder: str, summary: Summary | None, diverged: str) -> None:
        if summary is None:
            lost[folder], said = diverged, f"diverged: {diverged}"
        else:
            found[folder], said = summary, _in_words(summary)
        say(f"{len(found) + len(lost):>4}/{len(distinct)}  {folder:<48} {said}")

    try:
        if workers == 1 or len(left) <= 1:
            for folder, job in left.items():
                try:
                    ended(folder, work(job, runs / folder), "")
                except DivergedError as error:
                    ended(folder, None, str(error))
        else:
            _side_by_side(left, runs, workers, ended)
    except KeyboardInterrupt as error:
        code = error.code if isinstance(error, Interrupted) else 128 + signal.SIGINT
        said = f"interrupted; {len(found)} of {len(distinct)} runs are finished; the same command goes on"
        raise Interrupted(said, code) from error
    return Outcomes(runs, {folder: found[folder] for folder in distinct if folder in found}, lost)


def _side_by_side(jobs: Mapping[str, Job], runs: Path, workers: int, ended: Callable[[str, Summary | None, str], None]) -> None:
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
                ended(folder, jobs[folder].finished(runs / folder), "")
            elif not isinstance(error, KeyboardInterrupt) and code not in (-signal.SIGINT, -signal.SIGTERM):
                raise error or RuntimeError(f"{folder} was {in_words(code)}")

        run_pool(take, workers, settle)


def _work(job: Job, path: Path) -> int:
    work(job, path)
    return 0


def work(job: Job, path: Path) -> Summary:
    """One run on one thread."""
    torch.set_num_threads(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    return job.run(path)


def _in_words(summary: Summary) -> str:
    accuracy, seconds = summary.get("test_accuracy"), summary.get("seconds")
    parts = [f"{100 * accuracy:6.2f} %"] if isinstance(accuracy, float) else []
    parts += [f"{seconds:7.1f} s"] if isinstance(seconds, float) else []
    return "  ".join(parts) or "done"
