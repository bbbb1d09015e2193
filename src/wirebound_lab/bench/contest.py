"""How a benchmark is declared and run: workloads, contenders whose answers are compared, ratios and goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from wirebound_lab.bench.results import Goal, Measurement, Settings, Table, WrongAnswerError
from wirebound_lab.bench.timing import race, threads

Answer = Mapping[str, Tensor]
Call = Callable[[], object]


class Workload(Protocol):
    """Sizes of a problem, and the words for them."""

    @property
    def label(self) -> str: ...


W = TypeVar("W", bound=Workload)


@dataclass(frozen=True)
class Contender:
    """A way to do the work, how to get its answer, and what to do before each of its turns."""

    name: str
    run: Call
    answer: Callable[[], Answer] | None = None
    prepare: Call | None = None


@dataclass(frozen=True)
class Ratio:
    """The time of one contender over that of another; ``goal`` is the subject, with {} for the workload."""

    name: str
    slow: str
    fast: str
    goal: str = ""


def require_equal(contender: Contender, expected: Answer, tolerance: float = 1e-4) -> None:
    """Raise unless the contender computes ``expected``, to a share of its largest number (0: to the bit)."""
    assert contender.answer is not None
    found = contender.answer()
    for part, theirs in expected.items():
        ours, scale = found[part], float(theirs.abs().max()) if theirs.numel() else 0.0
        if ours.shape != theirs.shape or not torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale):
            raise WrongAnswerError(f"{contender.name}: {part} differs from that of the first contender")


def compete(
    label: str, contenders: Sequence[Contender], settings: Settings, ratios: Sequence[Ratio] = (), *,
    tolerance: float = 1e-4, effort: float = 1.0,
) -> Measurement:  # fmt: skip
    """Compares all answers with that of the first contender, then times all in turns."""
    settings.say(label)
    answering = [contender for contender in contenders if contender.answer is not None]
    if answering:
        expected = answering[0].answer()  # type: ignore[misc]
        for contender in answering[1:]:
            require_equal(contender, expected, tolerance)
    prepare = {contender.name: contender.prepare for contender in contenders if contender.prepare is not None}
    runs = {contender.name: contender.run for contender in contenders}
    times = race(runs, effort * settings.seconds, settings.rounds, prepare)
    best = {name: timing.best for name, timing in times.items()}
    # Where the native kernels were not built, the reference stands for them.
    numbers = {ratio.name: best[ratio.slow] / best.get(ratio.fast, best.get("reference", 0.0)) for ratio in ratios}
    return Measurement(label, times, numbers)


@dataclass(frozen=True)
class Contest(Generic[W]):
    """One table of times: its rows are workloads with what is wanted of each ratio, and what the prototype reached."""

    title: str
    rows: Sequence[tuple[W, Mapping[str, tuple[float, float | None]]]]
    line_up: Callable[[W], Sequence[Contender]]
    ratios: Sequence[Ratio]
    tolerance: float = 1e-4
    effort: float = 1.0  # seconds of each contender, as a multiple of what the settings say

    def measure(self, workload: W, settings: Settings) -> Measurement:
        how = {"tolerance": self.tolerance, "effort": self.effort}
        return compete(workload.label, self.line_up(workload), settings, self.ratios, **how)

    def goals(self, workload: W, wanted: Mapping[str, tuple[float, float | None]], found: Measurement) -> list[Goal]:
        goals = []
        for ratio in self.ratios:
            if ratio.name in wanted:
                (least, prototype), reached = wanted[ratio.name], found.numbers[ratio.name]
                goals.append(Goal(ratio.goal.format(workload.label), least, reached, prototype=prototype))
        return goals

    def run(self, settings: Settings, count: int | None = None) -> tuple[Table, list[Goal]]:
        """All workloads, on as many threads as the settings say, or on ``count``."""
        found: list[Measurement] = []
        goals: list[Goal] = []
        with threads(count or settings.threads):
            for workload, wanted in self.rows:
                found.append(self.measure(workload, settings))
                goals += self.goals(workload, wanted, found[-1])
        return Table(self.title, found), goals
