"""Rewiring with Adam's state riding along, as a share of the layer's forward and backward pass."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from itertools import cycle

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops import library, philox, structs
from wirebound.ops.philox import Stream
from wirebound.wiring import Wiring, foreign
from wirebound_lab.bench import ours
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table, WrongAnswerError
from wirebound_lab.bench.timing import race, threads
from wirebound_lab.bench.workload import Problem, Workload

SHARE = 1000  # one in so many connections is replaced
BATCH = 32
GOAL = 10.0  # per cent
SHARE_OF_PASS = "rewiring, % of forward + backward"
# (side of a square layer, K); the goal is judged on each, since no single layer stands for a K.
LAYERS = ((1024, 100_000), (10_000, 100_000), (10_000, 1_000_000), (4096, 1_000_000), (100_000, 1_000_000))


class Rewired:
    """A wiring with Adam's arrays, in which other connections die in every call."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        count = wiring.budget
        self.carried: list[tuple[Tensor, float]] = [
            (torch.zeros(count), 0.0),
            (torch.zeros(count), 0.0),
            (torch.zeros(count, dtype=torch.int32), 1.0),
        ]
        n_dead = max(1, count // SHARE)
        cpu = torch.device("cpu")
        self.dead = [philox.sample_sorted(count, n_dead, 0, int(Stream.OTHER), i, cpu) for i in range(16)]
        self._next = cycle(self.dead)
        self.steps = 0

    def bare(self) -> Callable[[], object]:
        """The kernel alone, on arguments that were made before."""
        native = library.load()
        assert native is not None
        wiring, one = self.wiring, ctypes.c_int64 * 1
        foreign.go_alone(wiring)  # a copy whose arrays move without its knowing
        moved = [wiring.theta, *(tensor for tensor, _ in self.carried)]
        carried = (structs.Carried * len(moved))()
        for entry, tensor in zip(carried, moved, strict=True):
            entry.data, entry.size, entry.fill = tensor.data_ptr(), tensor.element_size(), 0
        n_in, n_out, born, died = one(*wiring.geometry.n_in), one(*wiring.geometry.n_out), one(), one()
        arrays = (n_in, n_out, wiring.colptr.data_ptr(), wiring.packed_rows.data_ptr(), carried, len(moved))
        budget, seed, index, threads = wiring.budget, wiring.seed, wiring.index, torch.get_num_threads()

        def run() -> None:
            self.steps += 1
            dead = next(self._next)
            native.wb_rewire(
                *(budget, 1, *arrays, dead.data_ptr(), dead.numel()),
                *(seed, index, self.steps, None, born, died, threads),
            )

        return run

    def rewire(self) -> None:
        self.steps += 1
        carried = [*self.carried[:2], (self.carried[2][0], float(self.steps))]
        self.wiring.rewire_(next(self._next), carried, self.steps, None)


def check_rewire(wiring: Wiring) -> None:
    """Kernel and reference give the same wiring, to the bit."""
    results = []
    for implementation in ("reference", "native"):
        mine = Rewired(copy.deepcopy(wiring))
        with ops.use(implementation):
            mine.rewire()
            mine.rewire()
        mine.wiring.check()
        carried = [tensor for tensor, _ in mine.carried]
        results.append([mine.wiring.packed_rows, mine.wiring.colptr, mine.wiring.theta.detach(), *carried])
    if not all(torch.equal(a, b) for a, b in zip(*results, strict=True)):
        raise WrongAnswerError("rewire: the kernel differs from the reference")


def measure_rewire(side: int, budget: int, settings: Settings) -> Measurement:
    """Forward + backward and rewiring of the same layer, in turns."""
    density = budget / side**2
    label = f"K {budget:,}, {side:,}×{side:,}, {100 * density:.2g} %"
    settings.say(f"rewire {label}")
    problem = Problem(Workload(side, side, density, BATCH), budget)
    check_rewire(problem.layer.wiring)
    mine, bare = Rewired(copy.deepcopy(problem.layer.wiring)), Rewired(copy.deepcopy(problem.layer.wiring))
    native = ops.native_available()
    pass_ = ours.kernel(problem) if native else ours.through_ops(problem, "reference", reference=True)
    contenders = {
        f"forward + backward, B {BATCH}": pass_.run,
        "rewiring": bare.bare() if native else mine.rewire,
        "rewiring, through Python": mine.rewire,
    }
    times = race(contenders, settings.seconds, settings.rounds)
    mine.wiring.check()
    bare.wiring.check()
    both, rewiring, through = (timing.best for timing in times.values())
    numbers = {
        SHARE_OF_PASS: 100 * rewiring / both,
        "through Python, %": 100 * through / both,
        "ns a replaced connection": 1e9 * rewiring / mine.dead[0].numel(),
    }
    return Measurement(label, times, numbers)


def measure(settings: Settings) -> Section:
    layers = LAYERS[:1] if settings.quick else LAYERS
    with threads(settings.threads):
        found = [measure_rewire(side, budget, settings) for side, budget in layers]
    goals = [
        Goal(
            f"rewiring 1 in {SHARE:,} incl. Adam state, {m.workload}: of forward + backward",
            GOAL,
            m.numbers[SHARE_OF_PASS],
            "%",
            at_most=True,
        )
        for m in found
    ]
    notes = [
        f"1 in {SHARE:,} connections dies and is reborn elsewhere; θ, two moments and the age move along. "
        "Rewiring and forward + backward are bare kernels, and the goal is judged on these; through Python is "
        "rewiring as DeepR calls it. The pass of a layer that fits the cache is cheap, so its share is highest."
    ]
    return Section("rewire", "Rewiring", [Table("Rewiring", found)], goals, notes)
