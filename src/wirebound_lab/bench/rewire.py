"""Rewiring with Adam's state carried along, as a share of the layer's forward and backward pass."""

from __future__ import annotations

import copy
import ctypes
from itertools import cycle

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops import library, philox, structs
from wirebound.ops.philox import Stream
from wirebound.wiring import Wiring, copies
from wirebound_lab.bench import linear_contenders as ways
from wirebound_lab.bench.contest import Call, Contender, compete
from wirebound_lab.bench.linear_contenders import LinearProblem, LinearWorkload
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table, WrongAnswerError
from wirebound_lab.bench.timing import threads

SHARE = 1000  # one in so many connections is replaced
BATCH = 32
GOAL = 10.0  # per cent
SHARE_OF_PASS = "rewiring, % of forward + backward"
# (side of a square layer, K); the goal is judged on each, since no single layer stands for a K.
LAYERS = ((1024, 100_000), (10_000, 100_000), (10_000, 1_000_000), (4096, 1_000_000), (100_000, 1_000_000))


class Rewired:
    """A wiring with Adam's arrays, in which other connections die in every call."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = copy.deepcopy(wiring)
        count = wiring.budget
        self.moments = [torch.zeros(count), torch.zeros(count)]
        self.born = torch.zeros(count, dtype=torch.int32)
        n_dead, cpu = max(1, count // SHARE), torch.device("cpu")
        self.dead = [philox.sample_sorted(count, n_dead, 0, int(Stream.OTHER), i, cpu) for i in range(16)]
        self._next = cycle(self.dead)
        self.steps = 0

    def arrays(self) -> list[Tensor]:
        return [self.wiring.theta.detach(), *self.moments, self.born]

    def bare(self) -> Call:
        """The kernel alone, on arguments that were made before."""
        native = library.load()
        assert native is not None
        wiring, one, moved = self.wiring, ctypes.c_int64 * 1, self.arrays()
        copies.go_alone(wiring)  # a copy whose arrays move without its knowing
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
        carried = [*((moment, 0.0) for moment in self.moments), (self.born, float(self.steps))]
        self.wiring.rewire_(next(self._next), carried, self.steps, None)


def check_rewire(wiring: Wiring) -> None:
    """Kernel and reference give the same wiring, to the bit."""
    results = []
    for implementation in ("reference", "native"):
        mine = Rewired(wiring)
        with ops.use(implementation):
            mine.rewire()
            mine.rewire()
        mine.wiring.check()
        results.append([mine.wiring.packed_rows, mine.wiring.colptr, *mine.arrays()])
    if not all(torch.equal(a, b) for a, b in zip(*results, strict=True)):
        raise WrongAnswerError("rewire: the kernel differs from the reference")


def measure_rewire(side: int, budget: int, settings: Settings) -> Measurement:
    """Forward + backward and rewiring of the same layer, in turns."""
    density = budget / side**2
    problem = LinearProblem(LinearWorkload(side, side, density, BATCH), budget)
    check_rewire(problem.wiring)
    mine, bare = Rewired(problem.wiring), Rewired(problem.wiring)
    contenders = [
        Contender(f"forward + backward, B {BATCH}", ways.bare(problem).run),
        Contender("rewiring", bare.bare() if ops.native_available() else mine.rewire),
        Contender("rewiring, through Python", mine.rewire),
    ]
    found = compete(f"K {budget:,}, {side:,}×{side:,}, {100 * density:.2g} %", contenders, settings)
    mine.wiring.check()
    bare.wiring.check()
    both, rewiring, through = (timing.best for timing in found.times.values())
    found.numbers[SHARE_OF_PASS] = 100 * rewiring / both
    found.numbers["through Python, %"] = 100 * through / both
    found.numbers["ns a replaced connection"] = 1e9 * rewiring / mine.dead[0].numel()
    return found


def measure(settings: Settings) -> Section:
    layers = LAYERS[:1] if settings.quick else LAYERS
    with threads(settings.threads):
        found = [measure_rewire(side, budget, settings) for side, budget in layers]
    subject = f"rewiring 1 in {SHARE:,} incl. Adam state, {{}}: of forward + backward"
    goals = [Goal(subject.format(m.workload), GOAL, m.numbers[SHARE_OF_PASS], "%", at_most=True) for m in found]
    notes = [
        f"1 in {SHARE:,} connections dies and is reborn elsewhere; θ, two moments and the age move along. Rewiring and "
        "forward + backward are bare kernels, and the goal is judged on these; through Python is rewiring as DeepR "
        "calls it. The pass of a layer that fits the cache is cheap, so its share is highest."
    ]
    return Section("rewire", "Rewiring", [Table("Rewiring", found)], goals, notes)
