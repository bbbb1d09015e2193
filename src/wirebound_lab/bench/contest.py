"""How a benchmark is declared and timed: workloads, contenders whose answers are compared, ratios and goals."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from . import machine

_SAMPLE_SECONDS = 1e-4  # of one sample at least: the clock itself costs 1e-7
_ENOUGH = 3  # samples of a contender so slow that it would hold up the race
Answer = Mapping[str, Tensor]
Call = Callable[[], object]


class WrongAnswerError(ArithmeticError):
    """A contender computes something else than the others, so its time would mean nothing."""


class Wanted(NamedTuple):
    """What is wanted on each kind of processor that has goals."""

    avx2: float
    avx512: float

    def on(self, kind: str) -> float | None:
        """AVX2 kernels on an AVX-512 machine are held to the goals for AVX2, against a faster dense torch."""
        return self._asdict().get(kind.partition(machine.ON)[0])


@dataclass(frozen=True)
class Settings:
    seconds: float = 0.3  # for each contender on each workload
    rounds: int = 10
    quick: bool = False  # a first look: the largest workloads omitted
    threads: int = 1
    say: Callable[[str], None] = lambda text: None
    kind: str = field(default_factory=machine.kind)

    def goal(self, subject: str, wanted: Wanted | None, reached: float, unit: str = "×", at_most: bool = False) -> list["Goal"]:
        """The goal on this kind of processor, if there is one."""
        value = None if wanted is None else wanted.on(self.kind)
        return [] if value is None else [Goal(subject, value, reached, unit, at_most)]


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: of the best sample, which noise can only make slower, and of the middle one."""

    best: float
    median: float
    samples: int


@dataclass(frozen=True)
class Measurement:
    """One workload: the time of each contender, and numbers such as ratios that follow from them."""

    workload: str
    times: dict[str, Timing] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    curve: dict[float, float] = field(default_factory=dict)  # dense ÷ ours at each density, in per cent


@dataclass(frozen=True)
class Table:
    title: str
    measurements: list[Measurement]


@dataclass(frozen=True)
class Goal:
    """What was wanted and what was reached."""

    subject: str
    wanted: float
    reached: float
    unit: str = "×"
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.reached <= self.wanted if self.at_most else self.reached >= self.wanted


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    tables: list[Table]
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "goals": [{**asdict(goal), "met": goal.met} for goal in self.goals]}


def race(
    contenders: Mapping[str, Call], seconds: float, rounds: int = 10, prepare: Mapping[str, Call] | None = None
) -> dict[str, Timing]:
    """Times each contender for about ``seconds`` in turns, so that a busy moment hits all; ``prepare`` is not timed."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    repeats, total = {}, dict.fromkeys(contenders, 0.0)
    for name, run in contenders.items():
        run()  # warm-up: first calls allocate, fault pages in and choose kernels
        repeats[name] = max(1, math.ceil(_SAMPLE_SECONDS / max(_clock(run, 1), 1e-9)))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, run in contenders.items():
                if len(samples[name]) >= _ENOUGH and total[name] >= 2 * seconds:
                    continue
                if prepare and name in prepare:
                    prepare[name]()
                spent = 0.0
                while spent < seconds / rounds:
                    elapsed = _clock(run, repeats[name])
                    samples[name].append(elapsed / repeats[name])
                    spent += elapsed
                total[name] += spent
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(min(found), statistics.median(found), len(found)) for name, found in samples.items()}


def _clock(run: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return time.perf_counter() - start


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within the block, torch and the kernels use this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Contender:
    """A way to do the work, how to get its answer, and what to do before each of its turns."""

    name: str
    run: Call
    answer: Callable[[], Answer] | None = None
    prepare: Call | None = None


class Ratio(NamedTuple):
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


class Workload(Protocol):
    @property
    def label(self) -> str: ...


W = TypeVar("W", bound=Workload)


@dataclass(frozen=True)
class Contest(Generic[W]):
    """One table of times: its rows are workloads with what is wanted of each ratio."""

    title: str
    rows: Sequence[tuple[W, Mapping[str, Wanted]]]
    line_up: Callable[[W], Sequence[Contender]]
    ratios: Sequence[Ratio]
    tolerance: float = 1e-4
    effort: float = 1.0  # seconds of each contender, as a multiple of what the settings say

    def measure(self, workload: W, settings: Settings) -> Measurement:
        how = {"tolerance": self.tolerance, "effort": self.effort}
        return compete(workload.label, self.line_up(workload), settings, self.ratios, **how)

    def goals(self, workload: W, wanted: Mapping[str, Wanted], found: Measurement, settings: Settings) -> list[Goal]:
        each = ((ratio.goal.format(workload.label), wanted.get(ratio.name), found.numbers[ratio.name]) for ratio in self.ratios)
        return [goal for one in each for goal in settings.goal(*one)]

    def run(self, settings: Settings, count: int | None = None) -> tuple[Table, list[Goal]]:
        """All workloads, on as many threads as the settings say, or on ``count``."""
        with threads(count or settings.threads):
            found = [self.measure(workload, settings) for workload, _ in self.rows]
        pairs = zip(self.rows, found, strict=True)
        goals = [goal for (workload, wanted), one in pairs for goal in self.goals(workload, wanted, one, settings)]
        return Table(self.title, found), goals
