"""Trials from an Optuna study in a shared storage, so that several machines work on one sweep.

A grid is put into the study as waiting trials, from which every machine takes the next; a search asks Optuna's sampler
for each trial. Entries are input like any other: what is not of its kind counts as missing.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirebound_lab.run.config import ConfigError, RunConfig, make_config
from wirebound_lab.run.record import is_count, is_number
from wirebound_lab.sweep.outcome import FAILED, FINISHED, INTERRUPTED, RUNNING, Outcome, finished_runs, read_outcome
from wirebound_lab.sweep.plan import Plan, Trial, key_of, name_of, suggest

BEAT = 60.0  # seconds between signs of life of a running trial
SILENT = 600.0  # after that many seconds without one, a trial is given to someone else
_MOST_PROCESSES = 1 << 22  # what Linux can number
_TOLD = ("seconds", "evaluated_on", "folder", "error")  # of an outcome, beside state and accuracy


# Of each attribute of an entry that we read: what it must be to count.
_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("key", "evaluated_on", "folder", "error", "host"), lambda found: isinstance(found, str)),
    **dict.fromkeys(("seconds", "beat"), is_number),
    "pid": lambda found: is_count(found) and 0 < found < _MOST_PROCESSES,
    "state": lambda found: found in (FAILED, INTERRUPTED),  # how it ended, where Optuna only knows that it failed
}


@dataclass(frozen=True)
class Entry:
    """A trial of the study, checked."""

    number: int
    state: Any  # of Optuna's states
    config: RunConfig | None  # None: it has no settings that we can read
    accuracy: float | None
    again: dict[str, Any]  # what a trial must have to be run once more
    said: dict[str, Any]  # its attributes that are of their kind


def read_entry(frozen: Any) -> Entry:
    """The entry of one of Optuna's trials."""
    given = frozen.user_attrs if isinstance(frozen.user_attrs, dict) else {}
    values = frozen.values if isinstance(frozen.values, list) else []
    said = {name: given[name] for name, fits in _FITS.items() if name in given and fits(given[name])}
    if frozen.datetime_start is not None:
        said.setdefault("beat", frozen.datetime_start.timestamp())
    config = None
    with contextlib.suppress(ConfigError):
        config = make_config(given["settings"]) if isinstance(given.get("settings"), dict) else None
    accuracy = float(values[0]) if len(values) == 1 and is_number(values[0]) else None
    again = {name: given[name] for name in ("key", "name", "settings") if name in given}
    return Entry(frozen.number, frozen.state, config, accuracy, again, said)


@contextlib.contextmanager
def said_in_one_line(storage: str) -> Iterator[None]:
    """Whatever Optuna and the driver of a database raise, as one error that names the storage."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
        raise ConfigError(f"storage (={storage}) cannot be used: {what}; mend it, or name another") from error


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

    ``limit`` is None for a grid, and for a search the number of trials of the whole study; errors name ``storage``.
    """

    def __init__(
        self, plan: Plan, out: Path, study: Any, limit: int | None, noted: Callable[[StudySource], None], storage: str = "optuna.journal"
    ) -> None:
        self.plan, self.study, self.limit, self._storage, self._noted = plan, study, limit, storage, noted
        self._states = _optuna().trial.TrialState
        self._mine: dict[str, Any] = {}  # what this machine runs, by name: a search may propose the same point twice
        self._beaten, self._host = time.time(), platform.node()
        with said_in_one_line(storage):
            self._drop_lost()
            if limit is None:
                self._enqueue(finished_runs(out))
        self.trials: list[Trial] = []
        self.outcomes: dict[str, Outcome] = {}
        self.refresh()
        self.already = sum(outcome.state == FINISHED for outcome in self.outcomes.values())

    def take(self) -> Trial | None:
        with said_in_one_line(self._storage):
            while self._has_more():
                asked = self.study.ask()
                trial = self._claim(asked) if self.limit is None else self._propose(asked)
                if trial is not None:
                    _note(asked, host=self._host, pid=os.getpid(), beat=time.time())
                    self._mine[trial.name] = asked
                    return trial
            return None

    def done(self, trial: Trial, outcome: Outcome) -> None:
        asked = self._mine.pop(trial.name)
        with said_in_one_line(self._storage):
            _note(asked, **{name: value for name in _TOLD if (value := getattr(outcome, name)) is not None})
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
        common = {name: entry.said.get(name) for name in _TOLD}
        if self._done(entry):
            return Outcome(FINISHED, accuracy=entry.accuracy, **common)
        if entry.state == self._states.RUNNING:
            return Outcome(RUNNING, folder=entry.said.get("folder"))
        failed = entry.state == self._states.FAIL and "state" in entry.said
        return Outcome(entry.said["state"], **common) if failed else None

    def _entries(self) -> list[Entry]:
        return [read_entry(frozen) for frozen in self.study.get_trials(deepcopy=False)]

    def _has_more(self) -> bool:
        entries = self._entries()
        if self.limit is None:
            return any(entry.state == self._states.WAITING for entry in entries)
        # What was interrupted or lost does not count; what failed does, or a search might never end.
        dropped = [entry for entry in entries if entry.state == self._states.FAIL and entry.said.get("state") != FAILED]
        return len(entries) - len(dropped) < self.limit

    def _enqueue(self, finished: dict[str, Path]) -> None:
        """Put the grid into the study: what is neither there nor in a run folder of ours waits to be run."""
        states = self._states
        live = (states.WAITING, states.RUNNING)
        there = {entry.said.get("key") for entry in self._entries() if entry.state in live or self._done(entry)}
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
        same = [e for e in entries if e.number < asked.number and e.said.get("key") == mine.said.get("key")]
        twin = any(entry.state == self._states.RUNNING or self._done(entry) for entry in same)
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
            _note(asked, state=FAILED, error=str(error))
            self.study.tell(asked, state=self._states.FAIL)
            return None
        trial = Trial(f"trial-{asked.number}-{key_of(config)[:8]}", config)
        _note(asked, key=trial.key, name=trial.name, settings=config.as_dict())
        return trial

    def _drop_lost(self) -> None:
        """Trials whose process has gone go back into the queue."""
        for entry in self._entries():
            if entry.state != self._states.RUNNING or any(a.number == entry.number for a in self._mine.values()):
                continue
            said = entry.said
            silent = "beat" not in said or time.time() - said["beat"] > SILENT
            if silent or (said.get("host") == self._host and "pid" in said and not _lives(said["pid"])):
                self.study.tell(entry.number, state=self._states.FAIL)
                if self.limit is None and "settings" in entry.again:
                    self.study.enqueue_trial({}, user_attrs=entry.again)


def _note(asked: Any, **values: Any) -> None:
    for name, value in values.items():
        asked.set_user_attr(name, value)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # what we may not signal lives
    return True
