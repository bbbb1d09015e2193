"""Curves, and how long ones are made short without hiding what they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Values = Sequence[float | None]


@dataclass(frozen=True)
class Series:
    """One curve of a chart; None in y is a gap. low and high, if given, are drawn as a band around it."""

    name: str
    x: Sequence[float]
    y: Values
    low: Values = ()
    high: Values = ()
    color: int = 0
    dashed: bool = False
    marks: bool = False
    line: bool = True
    rule: bool = False  # a level over the whole width: x is set when the width is known
    whiskers: bool = False  # low and high as bars at each point instead of a band
    spread: bool = False  # low and high are a spread around y that a read-out should tell
    labels: Sequence[str | None] = ()  # words for single points


def thin(x: Sequence[float], y: Values, limit: int) -> tuple[list[float], list[float | None]]:
    """At most about `limit` points of a curve: the lowest and the highest of each stretch, and both ends."""
    if len(x) <= limit:
        return list(x), list(y)
    keep = {0, len(x) - 1}
    for start, stop in _stretches(len(x), max(1, limit // 2)):
        present = [index for index in range(start, stop) if y[index] is not None]
        if present:
            keep.add(min(present, key=lambda index: y[index] or 0.0))
            keep.add(max(present, key=lambda index: y[index] or 0.0))
        else:
            keep.add(start)  # the gap stays a gap
    chosen = sorted(keep)
    return [x[index] for index in chosen], [y[index] for index in chosen]


def binned(
    name: str, x: Sequence[float], y: Values, weights: Sequence[float], limit: int, color: int = 0
) -> Series:
    """A curve of weighted means over stretches, with a band from the lowest to the highest value in each."""
    if len(x) <= limit:
        return Series(name, list(x), list(y), color=color)
    centers: list[float] = []
    means: list[float | None] = []
    lows: list[float | None] = []
    highs: list[float | None] = []
    for start, stop in _stretches(len(x), limit):
        centers.append((x[start] + x[stop - 1]) / 2)
        present = [
            (value, weight)
            for value, weight in zip(y[start:stop], weights[start:stop], strict=True)
            if value is not None
        ]
        total = sum(weight for _, weight in present)
        means.append(sum(value * weight for value, weight in present) / total if total else None)
        lows.append(min((value for value, _ in present), default=None))
        highs.append(max((value for value, _ in present), default=None))
    return Series(name, centers, means, lows, highs, color=color)


def _stretches(length: int, count: int) -> list[tuple[int, int]]:
    edges = [length * index // count for index in range(count + 1)]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]
