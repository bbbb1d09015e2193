"""The soak: threads that train models of every kind, with what others do to models in between, and Ctrl-C all the while.

    python tests/edges/soak.py --seconds 600 --seed 0

Four threads train random models, each with random habits between steps, while the main thread, the only one that signals
reach, trains another one under interrupts at random moments. After everything that is done the oracle (``soak_trial.py``)
looks at the model. The first fault ends it, with the seed, the thread and what had been done to the model.
"""

import argparse
import faulthandler
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from soak_habits import HABITS, train
from soak_trial import Trial

_THREADS = 4
_ACTIONS = 25  # done to a model before the next one is made


@dataclass
class Outcome:
    """What the soak did, and its first fault."""

    models: int = 0
    actions: Counter = field(default_factory=Counter)
    checks: int = 0
    interrupts: int = 0
    fault: str | None = None


class _Interrupt(BaseException):
    """As KeyboardInterrupt, but told apart from a real one."""


class Soak:
    def __init__(self, seconds: float, seed: int) -> None:
        self.seed, self.end = seed, time.monotonic() + seconds
        self.outcome, self.lock = Outcome(), threading.Lock()

    @property
    def over(self) -> bool:
        return self.outcome.fault is not None or time.monotonic() > self.end

    def run(self) -> Outcome:
        threads = [threading.Thread(target=self._guarded, args=(self._live, n)) for n in range(_THREADS)]
        for thread in threads:
            thread.start()
        try:
            self._guarded(self._live_under_interrupts, _THREADS)
        finally:
            self.end = min(self.end, time.monotonic())
            for thread in threads:
                thread.join()
        return self.outcome

    def _guarded(self, live, number: int) -> None:
        trials: list[Trial] = []
        try:
            for life in range(1 << 30):
                if self.over:
                    return
                trial = Trial(random.Random(f"{self.seed}/{number}/{life}"))
                trials[:] = [trial]
                live(trial)
                with self.lock:
                    self.outcome.models += 1
                    self.outcome.checks += trial.checks
                    self.outcome.actions.update(trial.history[1:])
        except BaseException:
            what = "\n  ".join(trials[0].history) if trials else "making a model"
            with self.lock:
                self.outcome.fault = self.outcome.fault or (
                    f"seed {self.seed}, thread {number}, life {life}, done to the model:\n  {what}\n{traceback.format_exc()}"
                )

    def _live(self, trial: Trial) -> None:
        for _ in range(_ACTIONS):
            if self.over:
                return
            habit = trial.rng.choice(HABITS) if trial.rng.random() < 0.7 else train
            trial.history.append(habit.__name__)
            habit(trial)
            trial.check()

    def _live_under_interrupts(self, trial: Trial) -> None:
        trial.step()  # torch's optimisers cannot go on if they are interrupted while they make their state
        for _ in range(_ACTIONS):
            if self.over:
                return
            trial.history.append("interrupted")
            with self.lock:
                self.outcome.interrupts += 1
            _interrupted(trial)
            trial.check()
            trial.step()
            trial.check()


def _raise(signum, frame):
    raise _Interrupt


def _interrupted(trial: Trial) -> None:
    """Train until a signal comes, at another moment of a step each time; caught as in a notebook."""
    before = signal.signal(signal.SIGALRM, _raise)
    try:
        signal.setitimer(signal.ITIMER_REAL, trial.rng.uniform(2e-4, 2e-2))
        while True:
            trial.gradients()
            trial.method.step()
    except _Interrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        torch.set_grad_enabled(True)  # torch itself may have been between switching them off and on


def soak(seconds: float, seed: int) -> Outcome:
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Soak(seconds, seed).run()
        finally:
            torch.set_num_threads(threads)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    faulthandler.enable()
    outcome = soak(settings.seconds, settings.seed)
    print(
        f"{outcome.models} models, {sum(outcome.actions.values())} actions, {outcome.interrupts} interrupts, "
        f"{outcome.checks} checks against the dense twin"
    )
    for name, count in sorted(outcome.actions.items()):
        print(f"  {name}: {count}")
    if outcome.fault:
        print(outcome.fault, file=sys.stderr)
    return 1 if outcome.fault else 0


if __name__ == "__main__":
    raise SystemExit(main())
