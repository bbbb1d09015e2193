"""Schedules: in which steps connections are replaced, and how many; RigL's is ``Every(100, cosine(0.3, until=7_500))``.

``constant``, ``cosine``, ``linear`` and ``inverse_power`` are the curves that Evci et al. (2020, appendix) compare;
any function from step to share will do.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Curve: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class Every:
    """Replace a ``fraction`` of the connections in every ``every``-th step, before step ``until`` if that is given."""

    every: int
    fraction: float | Curve = 0.3  # in [0, 1]: a number, or a function of the step, from 1 on
    until: int | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every (={self.every}) must be >= 1")
        if self.until is not None and self.until < 0:
            raise ValueError(f"until (={self.until}) must be >= 0")
        if not callable(self.fraction):
            check_share("fraction", self.fraction)

    def share(self, step: int) -> float:
        """The share of the connections to replace in this step."""
        if step % self.every or (self.until is not None and step >= self.until):
            return 0.0
        return check_share("fraction", self.fraction(step)) if callable(self.fraction) else self.fraction


def check_share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} (={value}) must be in [0, 1]")
    return float(value)


@dataclass(frozen=True)
class _Falling:
    """A share that starts at ``first`` and is 0 from step ``until`` on; ``power`` None is along half a cosine."""

    first: float
    until: int
    power: float | None = None

    def __post_init__(self) -> None:
        check_share("fraction", self.first)
        if self.until < 1:
            raise ValueError(f"until (={self.until}) must be >= 1")
        if self.power is not None and not (math.isfinite(self.power) and self.power > 0):
            raise ValueError(f"power (={self.power}) must be a finite number > 0")

    def __call__(self, step: int) -> float:
        left = max(0.0, 1 - step / self.until)
        return self.first * (1 - math.cos(math.pi * left)) / 2 if self.power is None else self.first * left**self.power


def constant(fraction: float) -> Curve:
    """The same share for ever."""
    return lambda step: fraction


def cosine(fraction: float, until: int) -> Curve:
    """fraction · (1 + cos(π t / until)) / 2: along half a cosine to 0, RigL's own."""
    return _Falling(fraction, until)


def linear(fraction: float, until: int) -> Curve:
    """fraction · (1 − t / until): in a straight line to 0."""
    return _Falling(fraction, until, 1.0)


def inverse_power(fraction: float, until: int, power: float = 3.0) -> Curve:
    """fraction · (1 − t / until)^power; the cube is the curve of gradual magnitude pruning (Zhu and Gupta 2018)."""
    return _Falling(fraction, until, power)
