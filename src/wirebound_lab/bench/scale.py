"""A million by a million: memory and time of a layer that no dense one could match; cost grows with K."""

import time
from itertools import pairwise

import torch

import wirebound as wb
from wirebound import ops
from wirebound.methods.deep_r import DeepR
from wirebound.ops import library
from wirebound.ops.philox import Stream, stream_of

from .contest import Contender, Measurement, Section, Settings, Table, Timing, Wanted, compete, threads
from .fresh_process import Peak, run_fresh

SIDE, BUDGET, BATCH = 1_000_000, 10_000_000, 32
QUICK_SIDE, QUICK_BUDGET = 100_000, 1_000_000
PEAK_GOAL, BYTES_GOAL, TIME_GOAL = Wanted(1, 1), Wanted(24, 24), Wanted(1.1, 1.1)
# K, and the sides of two layers of which the second has 100 times more possible connections
GROWTH, QUICK_GROWTH = (1_000_000, 10_000, 100_000), (100_000, 1_000, 10_000)
PARTS = ("forward", "backward", "update", "rewiring")
# A θ is about 1/√n_in at the start and Adam moves it by about η: about one in a thousand dies in a step.
_LR_OF_THETA = 1e-3
_L1, _TEMPERATURE = 1e-3, 1e-12


class LargeLayer:
    def __init__(self, side: int, budget: int, batch: int) -> None:
        self.layer = wb.SparseLinear(side, side, bias=False, budget=budget)
        optimizer = torch.optim.Adam(self.layer.parameters(), lr=_LR_OF_THETA * side**-0.5)
        self.method = DeepR(self.layer, optimizer, l1=_L1, temperature=_TEMPERATURE)
        self.x = torch.randn(batch, side, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def step(self) -> int:
        """One training step as a user writes it; how many connections were replaced."""
        self.method.zero_grad()
        self.x.grad = None
        y = self.layer(self.x)
        torch.autograd.backward(y, y.detach())
        return self.method.step().rewired

    def kernels(self) -> dict[str, float]:
        """The same step by the ops alone, each timed: no autograd, no method, no module."""
        self.method.zero_grad()
        self.x.grad = None
        method, wiring, adapter = self.method, self.layer.wiring, self.method.adapter
        x, theta, index, group = self.x.detach(), wiring.theta.detach(), wiring.layer_index(0), adapter.group(wiring)
        backend = ops.backend_of(theta)
        method.steps += 1
        clock = [time.perf_counter()]
        y = backend.linear_forward(x, theta, index, self.layer.out_features, None)
        clock.append(time.perf_counter())
        _, dtheta = backend.linear_backward(x, y, theta, index, True, True)
        clock.append(time.perf_counter())
        rule, state = adapter.rule(0, group), adapter.state(0, group)
        drifts = method.drifts(0, wiring, method.steps, float(group["lr"]))
        noise = (wiring.seed, stream_of(Stream.NOISE, wiring.index), method.steps)
        dead = backend.update_(theta, dtheta, rule, state, drifts, *noise, sign_bound=True, clamp=False)
        clock.append(time.perf_counter())
        wiring.rewire_(dead, adapter.carried(0, group), method.steps, None)
        clock.append(time.perf_counter())
        return {f"{part}, alone": b - a for part, (a, b) in zip(PARTS, pairwise(clock), strict=True)}


def measure_here(side: int, budget: int, batch: int, steps: int, threads: int, kernels: str | None) -> dict[str, float]:
    """In this process: memory first, from steps alone; then steps and bare kernels in turns."""
    if library.isa() != kernels:
        raise OSError(f"this process runs kernels {library.isa()}, not {kernels}")
    torch.set_num_threads(threads)
    peak = Peak()
    found: dict[str, float] = {"peak of imports": peak.read()}
    run = LargeLayer(side, budget, batch)
    found["peak of construction"] = peak.read()
    peak.restart()
    found["rewired in a step"] = sum(run.step() for _ in range(2)) / 2
    found["peak of steps"], found["peak"] = peak.read(), max(peak.before, peak.read())
    kept = wb.ledger(run.layer, run.method)  # before zero_grad: gradients count
    found["bytes a connection"], found["bytes kept"] = kept.per_connection, kept.total
    run.layer.wiring.check()
    times: list[dict[str, float]] = []
    for _ in range(steps):
        start = time.perf_counter()
        run.step()
        times.append({"whole step": time.perf_counter() - start, **run.kernels()})
    run.layer.wiring.check()
    return {**found, **{name: min(each[name] for each in times) for name in times[0]}}


def run_process(side: int, budget: int, batch: int, steps: int, threads: int) -> dict[str, float]:
    how = {"steps": steps, "threads": threads, "kernels": library.isa()}
    return run_fresh(measure_here, side=side, budget=budget, batch=batch, **how)


def measure_scale(side: int, budget: int, settings: Settings, batch: int = BATCH) -> Measurement:
    settings.say(f"scale {side:,}×{side:,}, K {budget:,}")
    steps = 2 if settings.quick else 4
    found = run_process(side, budget, batch, steps, settings.threads)
    names = ("whole step", *(f"{part}, alone" for part in PARTS))
    numbers = {
        "peak RSS, GB": 1e-9 * found["peak"],
        **{f"peak RSS of {part}, GB": 1e-9 * found[f"peak of {part}"] for part in ("imports", "construction", "steps")},
        "bytes a connection": found["bytes a connection"],
        "bytes kept, GB": 1e-9 * found["bytes kept"],
        "step ÷ sum of kernels": found["whole step"] / sum(found[name] for name in names[1:]),
        "replaced in a step": found["rewired in a step"],
        "dense weights alone, GB": 4e-9 * side * side,
    }
    times = {name: Timing(found[name], found[name], steps) for name in names}
    return Measurement(f"{side:,}×{side:,}, K {budget:,}, B {batch}", times, numbers)


def measure_growth(budget: int, small: int, large: int, settings: Settings, batch: int = BATCH) -> Measurement:
    """Whole steps of the same K and batch in a small and a large layer; and both with one connection."""
    runs = {f"step in {side:,}×{side:,}": LargeLayer(side, budget, batch) for side in (small, large)}
    runs |= {f"activations alone, {side:,}×{side:,}": LargeLayer(side, 1, batch) for side in (small, large)}
    found = compete(f"K {budget:,}, B {batch}", [Contender(name, run.step) for name, run in runs.items()], settings)
    for run in runs.values():
        run.layer.wiring.check()
    in_small, in_large = (timing.best for timing in list(found.times.values())[:2])
    found.numbers["possible connections ×"] = (large / small) ** 2
    found.numbers["activations ×"] = large / small
    found.numbers["cost ×"] = in_large / in_small
    return found


def measure(settings: Settings) -> Section:
    side, budget = (QUICK_SIDE, QUICK_BUDGET) if settings.quick else (SIDE, BUDGET)
    scale = measure_scale(side, budget, settings)
    with threads(settings.threads):
        growth = measure_growth(*(QUICK_GROWTH if settings.quick else GROWTH), settings)
    label, numbers, more = scale.workload, scale.numbers, growth.numbers
    possible = f"{growth.workload}: cost with {more['possible connections ×']:.0f} × as many possible"
    wanted = [
        (f"{label}: peak RSS, torch included", PEAK_GOAL, numbers["peak RSS, GB"], "GB"),
        (f"{label}: bytes a connection", BYTES_GOAL, numbers["bytes a connection"], "B"),
        (f"{label}: step ÷ sum of its kernels", TIME_GOAL, numbers["step ÷ sum of kernels"], "×"),
        (possible, Wanted(*[more["activations ×"]] * 2), more["cost ×"], "×"),
    ]
    judged = wanted[1 if settings.quick else 0 :]
    goals = [goal for one in judged for goal in settings.goal(*one, at_most=True)]
    notes = [
        "Peak RSS is that of a whole process: Python, torch, construction and training steps (forward, backward with "
        "gradient to the input, Adam, ℓ1, noise, rewiring). The loss is ½‖y‖², whose gradient is y itself, so dy is "
        "y's own memory; gradients are taken over without a copy.",
        "Kernels alone: the same ops on the same tensors, without autograd, module and method, in turns with steps.",
        "Growth: at fixed K and batch, a layer with more possible connections has larger activations and nothing else "
        "that is larger; the goal is their growth.",
    ]
    tables = [Table("Training step at scale", [scale]), Table("Cost grows with K, not with the dense size", [growth])]
    return Section("scale", "Scale", tables, goals, notes)
