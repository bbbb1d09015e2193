"""The default source of trials: a list, and the run folders that tell which of them are done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wirebound_lab.sweep.outcome import Outcome, finished_runs, read_outcome
from wirebound_lab.sweep.plan import Plan, Trial


class LocalSource:
    """Gives out the trials of a plan that have no finished run folder in ``out``.

    ``outcomes`` goes by the key of a trial, and ``noted`` is called after each change of it.
    """

    def __init__(self, plan: Plan, out: Path, noted: Callable[[LocalSource], None]) -> None:
        self.trials = plan.trials()
        self.outcomes: dict[str, Outcome] = {}
        self._noted = noted
        found = finished_runs(out)
        self._waiting: list[Trial] = []
        for trial in self.trials:
            if trial.key in found:
                self.outcomes[trial.key] = read_outcome(found[trial.key])
            else:
                self._waiting.append(trial)
        self.already = len(self.outcomes)

    def take(self) -> Trial | None:
        return self._waiting.pop(0) if self._waiting else None

    def done(self, trial: Trial, outcome: Outcome) -> None:
        self.outcomes[trial.key] = outcome
        self._noted(self)

    def alive(self, trials: list[Trial]) -> None:
        pass
