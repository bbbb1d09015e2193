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

from wirebound.sweep.outcome import FAILED, FINISHED, INTERRUPTED, RUNNING, Outcome, finished_runs, read_outcome
from wirebound.sweep.plan import Plan, Trial, key_of, name_of
from wirebound.sweep.space import suggest
from wirebound.train.config import ConfigError, TrainConfig, make_config

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
        raise ConfigError(
            f"storage (={storage}) must not be SQLite, which gives the same trial to two machines: "
            "name a journal file by its path, or a database server"
        )
    where: Any = storage
    if "://" not in storage:
        path = Path(storage).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        where = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    # No seed: machines with the same one would all try the same points.
    sampler = optuna.samplers.TPESampler(constant_liar=True)
    try:
        return optuna.create_study(
            storage=where, study_name=name, direction="maximize", sampler=sampler, load_if_exists=True
        )
    except Exception as error:  # whatever the driver of that database raises
        raise ConfigError(f"storage (={storage}) cannot be opened: {error}") from error


class StudySource:
    """Gives out the trials of a study to this machine.

    ``limit`` is None for a grid, and for a search the number of trials of the whole study.
    """

    def __init__(
        self, plan: Plan, out: Path, study: Any, limit: int | None, noted: Callable[[StudySource], None]
    ) -> None:
        self.plan, self.study, self.limit = plan, study, limit
        self._states = _optuna().trial.TrialState
        self._noted = noted
        self._mine: dict[str, Any] = {}  # what this machine runs, by key
        self._beaten = time.time()
        self._host = platform.node()
        self._drop_lost()
        if limit is None:
            self._enqueue(finished_runs(out))
        self.trials: list[Trial] = []
        self.outcomes: dict[str, Outcome] = {}
        self.refresh()
        self.already = sum(outcome.state == FINISHED for outcome in self.outcomes.values())

    # What the driver calls

    def take(self) -> Trial | None:
        while self._has_more():
            asked = self.study.ask()
            trial = self._claim(asked) if self.limit is None else self._propose(asked)
            if trial is not None:
                for name, value in (("host", self._host), ("pid", os.getpid()), ("beat", time.time())):
                    asked.set_user_attr(name, value)
                self._mine[trial.key] = asked
                return trial
        return None

    def done(self, trial: Trial, outcome: Outcome) -> None:
        asked = self._mine.pop(trial.key)
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

    def alive(self, trials: list[Trial]) -> None:
        if time.time() - self._beaten > BEAT:
            self._beaten = time.time()
            for asked in self._mine.values():
                asked.set_user_attr("beat", self._beaten)
            self._drop_lost()

    # The study as we see it

    def refresh(self) -> None:
        """What all machines have done so far: trials and outcomes."""
        planned = {} if self.limit is not None else {trial.key: trial for trial in self.plan.trials()}
        outcomes: dict[str, Outcome] = {}
        for frozen in self._frozen():
            config = _config(frozen)
            if config is None:
                continue
            key = key_of(config)
            planned.setdefault(key, Trial(name_of(config, self.plan.varied), config))
            outcome = self._outcome(frozen)
            if outcome is not None and (key not in outcomes or outcomes[key].state != FINISHED):
                outcomes[key] = outcome
        self.trials, self.outcomes = list(planned.values()), outcomes

    def _outcome(self, frozen: Any) -> Outcome | None:
        attributes = frozen.user_attrs
        common = {name: attributes.get(name) for name in ("seconds", "evaluated_on", "folder", "error")}
        if frozen.state == self._states.COMPLETE:
            return Outcome(FINISHED, accuracy=frozen.value, **common)
        if frozen.state == self._states.RUNNING:
            return Outcome(RUNNING, folder=attributes.get("folder"))
        if frozen.state == self._states.FAIL and attributes.get("state") in (FAILED, INTERRUPTED):
            return Outcome(attributes["state"], **common)
        return None

    def _frozen(self) -> list[Any]:
        return list(self.study.get_trials(deepcopy=False))

    def _has_more(self) -> bool:
        trials = self._frozen()
        if self.limit is None:
            return any(trial.state == self._states.WAITING for trial in trials)
        # What was interrupted or lost does not count; what failed does, or a search might never end.
        dropped = [t for t in trials if t.state == self._states.FAIL and t.user_attrs.get("state") != FAILED]
        return len(trials) - len(dropped) < self.limit

    def _enqueue(self, finished: dict[str, Path]) -> None:
        """Put the grid into the study: what is neither there nor in a run folder of ours waits to be run."""
        states = self._states
        open_states = (states.WAITING, states.RUNNING, states.COMPLETE)
        there = {t.user_attrs.get("key") for t in self._frozen() if t.state in open_states}
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

    def _claim(self, asked: Any) -> Trial | None:
        """The run of a trial that was waiting; None if it turns out that there is nothing to run."""
        frozen = self._frozen()
        mine = next(t for t in frozen if t.number == asked.number)
        config = _config(mine)
        taken = (self._states.RUNNING, self._states.COMPLETE)
        # Two machines that started together may both have put the grid in: the lower number runs.
        twin = any(
            t.number < asked.number and t.state in taken and t.user_attrs.get("key") == mine.user_attrs.get("key")
            for t in frozen
        )
        if config is None or twin:  # without settings: someone else took the last one just before us
            self.study.tell(asked, state=self._states.PRUNED if twin else self._states.FAIL)
            return None
        return Trial(name_of(config, self.plan.varied), config)

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
        for frozen in self._frozen():
            if frozen.state != self._states.RUNNING or any(a.number == frozen.number for a in self._mine.values()):
                continue
            attributes = frozen.user_attrs
            silent = time.time() - float(attributes.get("beat", frozen.datetime_start.timestamp()))
            here = attributes.get("host") == self._host and "pid" in attributes
            if silent > SILENT or (here and not _lives(int(attributes["pid"]))):
                again = {name: attributes[name] for name in ("key", "name", "settings") if name in attributes}
                self.study.tell(frozen.number, state=self._states.FAIL)
                if self.limit is None and "settings" in again:
                    self.study.enqueue_trial({}, user_attrs=again)


def _config(frozen: Any) -> TrainConfig | None:
    """The settings in an entry of the storage, checked like any input; None if it has none that we can read."""
    settings = frozen.user_attrs.get("settings")
    if not isinstance(settings, dict):
        return None
    try:
        return make_config(settings)
    except ConfigError:
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
