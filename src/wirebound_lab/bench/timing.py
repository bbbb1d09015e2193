"""Times contenders against each other, in turns, so that a busy moment of the machine hits all alike."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

_SAMPLE_SECONDS = 1e-4  # of one sample at least: the clock itself costs 1e-7
_ENOUGH = 3  # samples of a contender so slow that it would hold up the race


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: of the best sample, which noise can only make slower, and of the middle one."""

    best: float
    median: float
    samples: int


class _Runner:
    """One contender, and the samples it has given so far."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.run = run
        run()  # warm-up: first calls allocate, fault pages in and choose kernels
        start = time.perf_counter()
        run()
        once = max(time.perf_counter() - start, 1e-9)
        self.repeats = max(1, math.ceil(_SAMPLE_SECONDS / once))
        self.samples: list[float] = []
        self.total = 0.0

    def turn(self, seconds: float) -> None:
        run, spent = self.run, 0.0
        while spent < seconds:
            start = time.perf_counter()
            for _ in range(self.repeats):
                run()
            elapsed = time.perf_counter() - start
            self.samples.append(elapsed / self.repeats)
            spent += elapsed
        self.total += spent


def race(
    contenders: Mapping[str, Callable[[], object]],
    seconds: float,
    rounds: int = 10,
    prepare: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, Timing]:
    """Times each contender for about ``seconds`` in all, over ``rounds`` in which each has its turn.

    What ``prepare`` has for a contender runs before each of its turns, and is not timed.
    """
    before = prepare or {}
    runners = {name: _Runner(run) for name, run in contenders.items()}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, runner in runners.items():
                if len(runner.samples) < _ENOUGH or runner.total < 2 * seconds:
                    if name in before:
                        before[name]()
                    runner.turn(seconds / rounds)
    finally:
        if collecting:
            gc.enable()
    samples = {name: runner.samples for name, runner in runners.items()}
    return {name: Timing(min(found), statistics.median(found), len(found)) for name, found in samples.items()}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within the block, torch and the kernels use this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
