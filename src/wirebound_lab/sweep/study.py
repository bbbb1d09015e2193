"""Trials from an Optuna study in a shared storage, so that several machines work on one sweep.

A grid is put into the study as waiting trials, from which every machine takes the next; a search asks Optuna's sampler
for each trial. The storage is a journal file on a shared file system, or a database by its address. Its entries are
treated as input like any other: settings are checked, and folder names are made here.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wirebound_lab.run.config import ConfigError
from wirebound_lab.sweep.entry import Entry, read_entry, said_in_one_line
from wirebound_lab.sweep.outcome import FAILED, FINISHED, RUNNING, Outcome, finished_runs, read_outcome
from wirebound_lab.sweep.plan import Plan, Trial, key_of, name_of, suggest

BEAT = 60.0  # seconds between signs of life of a running trial
SILENT = 600.0  # after that many seconds without one, a trial is given to someone else


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("a shared storage or a search needs Optuna: pip install 'wirebound[sweep]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(storage: str, name: str) -> Any:
    """The study of that name; ``storage`` is a path, or the address of a database such as ``mysql://...``."""
    optuna = _optuna()
    if storage.startswith("sqlite"):
        instead = "which gives the same trial to two machines: name a journal file by its path, or a database server"
        raise ConfigError(f"storage (={storage}) must not be SQLite, {instead}")
    # No seed: machines with the same one would all try the same points.
    sampler = optuna.samplers.TPESampler(constant_liar=True)
    with said_in_one_line(storage):
        where: Any = storage
        if "://" not in storage:
            path = Path(storage).expanduser()
            path.parent.mkdir(parents=True, exist_ok=True)
            where = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
        return optuna.create_study(storage=where, study_name=name, direction="maximize", sampler=sampler, load_if_exists=True)


class StudySource:
    """Gives out the trials of a study to this machine.

    ``limit`` is None for a grid, and for a search the number of trials of the whole study. ``storage`` is its name in
    errors: a storage may be damaged while it is in use.
    """

    def __init__(
        self, plan: Plan, out: Path, study: Any, limit: int | None, noted: Callable[[StudySource], None], storage: str = "optuna.journal"
    ) -> None:
        self.plan, self.study, self.limit, self._storage = plan, study, limit, storage
        self._states = _optuna().trial.TrialState
        self._noted = noted
        self._mine: dict[str, Any] = {}  # what this machine runs, by name: a search may propose the same point twice
        self._beaten = time.time()
        self._host = platform.node()
        with said_in_one_line(storage):
            self._drop_lost()
            if limit is None:
                self._enqueue(finished_runs(out))
        self.trials: list[Trial] = []
        self.outcomes: dict[str, Outcome] = {}
        self.refresh()
        self.already = sum(outcome.state == FINISHED for outcome in self.outcomes.values())

    # What the driver calls

    def take(self) -> Trial | None:
        with said_in_one_line(self._storage):
            while self._has_more():
                asked = self.study.ask()
                trial = self._claim(asked) if self.limit is None else self._propose(asked)
                if trial is not None:
                    for name, value in (("host", self._host), ("pid", os.getpid()), ("beat", time.time())):
                        asked.set_user_attr(name, value)
                    self._mine[trial.name] = asked
                    return trial
            return None

    def done(self, trial: Trial, outcome: Outcome) -> None:
        asked = self._mine.pop(trial.name)
        with said_in_one_line(self._storage):
            for name in ("seconds", "evaluated_on", "folder", "error"):
                if getattr(outcome, name) is not None:
                    asked.set_user_attr(name, getattr(outcome, name))
            if outcome.state == FINISHED:
                self.study.tell(asked, outcome.accuracy)
            else:
                asked.set_user_attr("state", outcome.state)
                self.study.tell(asked, state=self._states.FAIL)
        self.refresh()
        self._noted(self)

    def alive(self) -> None:
        if time.time() - self._beaten > BEAT:
            self._beaten = time.time()
            with said_in_one_line(self._storage):
                for asked in self._mine.values():
                    asked.set_user_attr("beat", self._beaten)
                self._drop_lost()

    # The study as we see it

    def refresh(self) -> None:
        """What all machines have done so far: trials and outcomes."""
        planned = {} if self.limit is not None else {trial.key: trial for trial in self.plan.trials()}
        outcomes: dict[str, Outcome] = {}
        with said_in_one_line(self._storage):
            entries = self._entries()
        for entry in entries:
            if entry.config is None:
                continue
            key = key_of(entry.config)
            planned.setdefault(key, Trial(name_of(entry.config, self.plan.varied), entry.config))
            outcome = self._outcome(entry)
            if outcome is not None and (key not in outcomes or outcomes[key].state != FINISHED):
                outcomes[key] = outcome
        self.trials, self.outcomes = list(planned.values()), outcomes

    def _outcome(self, entry: Entry) -> Outcome | None:
        common = {name: getattr(entry, name) for name in ("seconds", "evaluated_on", "folder", "error")}
        if self._done(entry):
            return Outcome(FINISHED, accuracy=entry.accuracy, **common)
        if entry.state == self._states.RUNNING:
            return Outcome(RUNNING, folder=entry.folder)
        if entry.state == self._states.FAIL and entry.ended is not None:
            return Outcome(entry.ended, **common)
        return None

    def _entries(self) -> list[Entry]:
        return [read_entry(frozen) for frozen in self.study.get_trials(deepcopy=False)]

    def _has_more(self) -> bool:
        entries = self._entries()
        if self.limit is None:
            return any(entry.state == self._states.WAITING for entry in entries)
        # What was interrupted or lost does not count; what failed does, or a search might never end.
        dropped = [entry for entry in entries if entry.state == self._states.FAIL and entry.ended != FAILED]
        return len(entries) - len(dropped) < self.limit

    def _enqueue(self, finished: dict[str, Path]) -> None:
        """Put the grid into the study: what is neither there nor in a run folder of ours waits to be run."""
        states = self._states
        there = {e.key for e in self._entries() if e.state in (states.WAITING, states.RUNNING) or self._done(e)}
        for trial in self.plan.trials():
            if trial.key in there:
                continue
            attributes = {"key": trial.key, "name": trial.name, "settings": trial.config.as_dict()}
            if trial.key in finished:
                outcome = read_outcome(finished[trial.key])
                attributes |= {name: getattr(outcome, name) for name in ("seconds", "evaluated_on", "folder")}
                create = _optuna().trial.create_trial
                self.study.add_trial(create(state=states.COMPLETE, value=outcome.accuracy, user_attrs=attributes))
            else:
                self.study.enqueue_trial({}, user_attrs=attributes)

    def _done(self, entry: Entry) -> bool:
        """Whether it has ended with a result that can be read."""
        return entry.state == self._states.COMPLETE and entry.accuracy is not None

    def _claim(self, asked: Any) -> Trial | None:
        """The run of a trial that was waiting; None if it turns out that there is nothing to run."""
        entries = self._entries()
        mine = next(entry for entry in entries if entry.number == asked.number)
        # Two machines that started together may both have put the grid in: the lower number runs.
        before = [entry for entry in entries if entry.number < asked.number and entry.key == mine.key]
        twin = any(entry.state == self._states.RUNNING or self._done(entry) for entry in before)
        if mine.config is None or twin:  # without settings: someone else took the last one just before us
            self.study.tell(asked, state=self._states.PRUNED if twin else self._states.FAIL)
            return None
        return Trial(name_of(mine.config, self.plan.varied), mine.config)

    def _propose(self, asked: Any) -> Trial | None:
        """A run at the point that Optuna's sampler proposes."""
        point = suggest(asked, self.plan)
        try:
            config = self.plan.config(point)
        except ConfigError as error:
            asked.set_user_attr("state", FAILED)
            asked.set_user_attr("error", str(error))
            self.study.tell(asked, state=self._states.FAIL)
            return None
        trial = Trial(f"trial-{asked.number}-{key_of(config)[:8]}", config)
        for name, value in (("key", trial.key), ("name", trial.name), ("settings", config.as_dict())):
            asked.set_user_attr(name, value)
        return trial

    def _drop_lost(self) -> None:
        """Trials whose process has gone go back into the queue."""
        for entry in self._entries():
            if entry.state != self._states.RUNNING or any(a.number == entry.number for a in self._mine.values()):
                continue
            silent = entry.beat is None or time.time() - entry.beat > SILENT
            if silent or (entry.host == self._host and entry.pid is not None and not _lives(entry.pid)):
                self.study.tell(entry.number, state=self._states.FAIL)
                if self.limit is None and "settings" in entry.again:
                    self.study.enqueue_trial({}, user_attrs=entry.again)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # what we may not signal lives
    return True
