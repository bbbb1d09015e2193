"""What a benchmark gives: measurements in tables, and goals beside what was reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from wirebound_lab.bench.timing import Timing


class WrongAnswerError(ArithmeticError):
    """A contender computes something else than the others, so its time would mean nothing."""


@dataclass(frozen=True)
class Settings:
    """How long and how carefully to measure."""

    seconds: float = 0.3  # for each contender on each workload
    rounds: int = 10
    quick: bool = False
    threads: int = 1
    say: Callable[[str], None] = lambda text: None

    @staticmethod
    def fast(threads: int = 1, say: Callable[[str], None] = lambda text: None) -> Settings:
        """A first look: fewer samples, and the largest workloads omitted."""
        return Settings(seconds=0.05, rounds=4, quick=True, threads=threads, say=say)


@dataclass(frozen=True)
class Measurement:
    """One workload: the time of each contender, and numbers such as ratios that follow from them."""

    workload: str
    times: dict[str, Timing] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Workloads that the same contenders ran."""

    title: str
    measurements: list[Measurement]


@dataclass(frozen=True)
class Goal:
    """What was wanted and what was reached; ``prototype``: what a sketch reached before the project began."""

    subject: str
    wanted: float
    reached: float
    unit: str = "×"
    at_most: bool = False
    prototype: float | None = None

    @property
    def met(self) -> bool:
        return self.reached <= self.wanted if self.at_most else self.reached >= self.wanted


@dataclass(frozen=True)
class Section:
    """One subject of the benchmark."""

    name: str
    title: str
    tables: list[Table]
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain data; times are in seconds."""
        return {**asdict(self), "goals": [{**asdict(goal), "met": goal.met} for goal in self.goals]}
