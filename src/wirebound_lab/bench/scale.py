"""A million by a million: memory and time of a layer that no dense one could match; cost grows with K."""

from __future__ import annotations

from wirebound.ops import library
from wirebound_lab.bench.fresh_process import run_fresh
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table
from wirebound_lab.bench.scale_process import Run
from wirebound_lab.bench.timing import Timing, race, threads

SIDE, BUDGET, BATCH = 1_000_000, 10_000_000, 32
QUICK_SIDE, QUICK_BUDGET = 100_000, 1_000_000
PEAK_GOAL, BYTES_GOAL, TIME_GOAL = 1.0, 24.0, 1.1
# K, and the sides of two layers of which the second has 100 times more possible connections
GROWTH, QUICK_GROWTH = (1_000_000, 10_000, 100_000), (100_000, 1_000, 10_000)
_PARTS = ("forward", "backward", "update", "rewiring")


def run_process(side: int, budget: int, batch: int, steps: int, threads: int) -> dict[str, float]:
    """``scale_process`` in a fresh Python."""
    settings = {"side": side, "budget": budget, "batch": batch, "steps": steps, "threads": threads}
    answer = run_fresh("wirebound_lab.bench.scale_process", settings, "the scale benchmark")
    if answer["kernels"] != library.isa():
        raise OSError(
            f"the process of the scale benchmark ran kernels {answer['kernels']}, not {library.isa()}"
        )
    found: dict[str, float] = answer["found"]
    return found


def measure_scale(side: int, budget: int, settings: Settings, batch: int = BATCH) -> Measurement:
    settings.say(f"scale {side:,}×{side:,}, K {budget:,}")
    found = run_process(side, budget, batch, 2 if settings.quick else 4, settings.threads)
    alone = sum(found[f"seconds of {part}"] for part in _PARTS)
    names = {"whole step": "seconds a step", **{f"{part}, alone": f"seconds of {part}" for part in _PARTS}}
    times = {name: Timing(found[key], found[key], 2 if settings.quick else 4) for name, key in names.items()}
    numbers = {
        "peak RSS, GB": 1e-9 * found["peak"],
        "peak RSS of imports, GB": 1e-9 * found["peak of imports"],
        "peak RSS of construction, GB": 1e-9 * found["peak of construction"],
        "peak RSS of steps, GB": 1e-9 * found["peak of steps"],
        "bytes a connection": found["bytes a connection"],
        "bytes kept, GB": 1e-9 * found["bytes kept"],
        "step ÷ sum of kernels": found["seconds a step"] / alone,
        "replaced in a step": found["rewired in a step"],
        "dense weights alone, GB": 4e-9 * side * side,
    }
    return Measurement(f"{side:,}×{side:,}, K {budget:,}, B {batch}", times, numbers)


def measure_growth(
    budget: int, small: int, large: int, settings: Settings, batch: int = BATCH
) -> Measurement:
    """Whole steps of the same K and batch in a small and a large layer; and both with one connection."""
    settings.say(f"growth K {budget:,}, {small:,} and {large:,}")
    names = {side: f"step in {side:,}×{side:,}" for side in (small, large)}
    idle = {side: f"activations alone, {side:,}×{side:,}" for side in (small, large)}
    runs = {names[side]: Run(side, budget, batch) for side in names}
    runs |= {idle[side]: Run(side, 1, batch) for side in idle}
    times = race({name: run.step for name, run in runs.items()}, settings.seconds, settings.rounds)
    for run in runs.values():
        run.layer.wiring.check()
    numbers = {
        "possible connections ×": (large / small) ** 2,
        "activations ×": large / small,
        "cost ×": times[names[large]].best / times[names[small]].best,
    }
    return Measurement(f"K {budget:,}, B {batch}", times, numbers)


def _at_most(subject: str, wanted: float, reached: float, unit: str = "×") -> Goal:
    return Goal(subject, wanted, reached, unit, at_most=True)


def measure(settings: Settings) -> Section:
    side, budget = (QUICK_SIDE, QUICK_BUDGET) if settings.quick else (SIDE, BUDGET)
    scale = measure_scale(side, budget, settings)
    with threads(settings.threads):
        growth = measure_growth(*(QUICK_GROWTH if settings.quick else GROWTH), settings)
    numbers = scale.numbers
    goals = [
        _at_most(f"{scale.workload}: bytes a connection", BYTES_GOAL, numbers["bytes a connection"], "B"),
        _at_most(f"{scale.workload}: step ÷ sum of its kernels", TIME_GOAL, numbers["step ÷ sum of kernels"]),
        _at_most(
            f"{growth.workload}: cost with {growth.numbers['possible connections ×']:.0f} × as many possible",
            growth.numbers["activations ×"],
            growth.numbers["cost ×"],
        ),
    ]
    if not settings.quick:
        subject = f"{scale.workload}: peak RSS, torch included"
        goals.insert(0, _at_most(subject, PEAK_GOAL, numbers["peak RSS, GB"], "GB"))
    notes = [
        "Peak RSS is that of a whole process: Python, torch, construction and training steps (forward, "
        "backward with gradient to the input, Adam, ℓ1, noise, rewiring). The loss is ½‖y‖², whose gradient "
        "is y itself, so dy is y's own memory; gradients are taken over without a copy.",
        "Kernels alone: the same ops on the same tensors, without autograd, module and method, in turns with "
        "steps.",
        "Growth: at fixed K and batch, a layer with more possible connections has larger activations and "
        "nothing else that is larger; the goal is their growth.",
    ]
    tables = [
        Table("Training step at scale", [scale]),
        Table("Cost grows with K, not with the dense size", [growth]),
    ]
    return Section("scale", "Scale", tables, goals, notes)
