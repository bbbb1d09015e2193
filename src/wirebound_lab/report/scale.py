"""Axes: from a value to a place on the chart, and where the ticks go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """From low..high to start..end (in chart units), linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        if self.log:
            value = max(value, self.low)
            part = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)


def linear_axis(
    values: Sequence[float],
    start: float,
    end: float,
    *,
    count: int = 5,
    whole: bool = False,
    tight: bool = False,
) -> Axis:
    """An axis that ends on ticks, or on the data if tight. Equal values are seen against zero."""
    low, high = min(values), max(values)
    if same(low, high):
        low, high = min(0.0, 1.25 * low), max(0.0, 1.25 * high)
        if low == high:
            high = 1.0
    step = nice_step((high - low) / count)
    if whole:
        step = max(1.0, math.ceil(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [round(index * step, 12) for index in range(first, last + 1)]
    if tight:
        slack = 1e-9 * (high - low)
        ticks = [tick for tick in ticks if low - slack <= tick <= high + slack]
        return Axis(low, high, start, end, tuple(ticks))
    return Axis(ticks[0], ticks[-1], start, end, tuple(ticks))


def same(low: float, high: float) -> bool:
    """Too close for ticks between them: what is left of their difference would be rounding."""
    return high - low <= 1e-9 * max(abs(low), abs(high))


def log_axis(values: Sequence[float], start: float, end: float, *, count: int = 7) -> Axis:
    """A logarithmic axis over the values above zero; there must be one."""
    above = [value for value in values if value > 0]
    low, high = min(above), max(above)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    grid = [mantissa * 10.0**power for power in powers for mantissa in (1, 2, 5)]
    first = max(index for index, value in enumerate(grid) if value <= low * (1 + 1e-9))
    last = min(index for index, value in enumerate(grid) if value >= high * (1 - 1e-9))
    if first == last:
        first, last = first - 1, last + 1
    ticks = grid[first : last + 1]
    if len(ticks) > count:
        # Too many for 1, 2 and 5: only powers of ten, every second or third of them if need be.
        tens = [value for index, value in enumerate(grid) if index % 3 == 0 and first <= index <= last]
        ticks = tens[:: math.ceil(len(tens) / count)]
    return Axis(grid[first], grid[last], start, end, tuple(ticks), log=True)


def nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, not below rough."""
    power = 10.0 ** math.floor(math.log10(rough))
    for mantissa in (1, 2, 5):
        if rough <= mantissa * power * (1 + 1e-9):
            return mantissa * power
    return 10 * power
