"""Runs trials side by side on this machine, wherever they come from: each is ``wirebound train`` in a process of its own."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from wirebound_lab.run.config import ConfigError, make_config
from wirebound_lab.run.processes import Child, Work, in_words, run_pool
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.run.resume import stored_settings
from wirebound_lab.sweep.outcome import FAILED, INTERRUPTED, Outcome, finished_runs, read_outcome
from wirebound_lab.sweep.plan import Plan, Trial, key_of
from wirebound_lab.sweep.study import StudySource

_INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)


class LocalSource:
    """Gives out the trials of a plan that have no finished run folder in ``out``; ``outcomes`` go by the key of a trial."""

    def __init__(self, plan: Plan, out: Path, noted: Callable[[LocalSource], None]) -> None:
        self.trials, self._noted = plan.trials(), noted
        found = finished_runs(out)
        self.outcomes = {trial.key: read_outcome(found[trial.key]) for trial in self.trials if trial.key in found}
        self._waiting = [trial for trial in self.trials if trial.key not in found]
        self.already = len(self.outcomes)

    def take(self) -> Trial | None:
        return self._waiting.pop(0) if self._waiting else None

    def done(self, trial: Trial, outcome: Outcome) -> None:
        self.outcomes[trial.key] = outcome
        self._noted(self)

    def alive(self) -> None:
        pass


Source = LocalSource | StudySource  # where trials come from and where their outcomes go


def drive(source: Source, out: Path, jobs: int, listener: Callable[[list[str]], None], work: Work) -> None:
    """Run what ``source`` gives, ``jobs`` at a time; ``work`` is ``wirebound train`` as a function of its arguments."""
    with tempfile.TemporaryDirectory(prefix="wirebound-sweep-") as scratch:

        def take() -> tuple[tuple[Trial, Path], Child] | None:
            trial = source.take()
            if trial is None:
                return None
            folder = free_folder(out, trial)
            settings = Path(scratch, f"{folder.name}-settings.json")
            settings.write_text(json.dumps({**trial.config.as_dict(), "threads": 1}), encoding="utf-8")
            # What an earlier start has left is resumed; where there is nothing, the run begins.
            arguments = ["--config", str(settings), "--out", str(folder), "--resume", "--quiet"]
            return (trial, folder), Child(work, (arguments,), Path(scratch), folder.name, quiet=True)

        def ended(job: tuple[Trial, Path], child: Child) -> None:
            trial, folder = job
            outcome = _outcome(folder, child)
            failed = out / "failed" / f"{folder.name}.txt"
            if outcome.state == FAILED:
                failed.parent.mkdir(exist_ok=True)
                failed.write_text(child.said, encoding="utf-8")
            elif failed.exists():
                failed.unlink()
            source.done(trial, outcome)

        def tick(running: list[tuple[Trial, Path]]) -> None:
            source.alive()
            listener([folder.name for _, folder in running])

        run_pool(take, jobs, ended, tick)  # type: ignore[arg-type]


def _outcome(folder: Path, child: Child) -> Outcome:
    code = child.code or 0
    if code == 0 or code in _INTERRUPTED:  # one that had finished may be interrupted on its way out
        try:
            return read_outcome(folder)
        except RunFolderError as error:
            if code:
                return Outcome(INTERRUPTED, folder=str(folder))
            return Outcome(FAILED, error=f"left no readable run folder: {error}", folder=str(folder))
    if code < 0:
        return Outcome(FAILED, error=in_words(code), folder=str(folder))
    # Advice on what to do next stands behind the error itself.
    lines = [line for line in child.said.splitlines() if line.strip() and not line.startswith("next: ")]
    reason = lines[-1].removeprefix("wirebound: ") if lines else str(child.error or f"exit code {code}")
    return Outcome(FAILED, error=reason, folder=str(folder))


def free_folder(out: Path, trial: Trial) -> Path:
    """The trial's folder; with its key in the name where something else has that name already."""
    folder = out / trial.name
    try:
        stored = stored_settings(folder)
        mine = not folder.exists() if stored is None else key_of(make_config(stored)) == trial.key
    except ConfigError:
        mine = False
    return folder if mine else out / f"{trial.name}-{trial.key[:8]}"
