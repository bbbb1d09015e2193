"""Convolutions: dense torch, masked dense and ours; and the memory of a wide network against its dense twin."""

from __future__ import annotations

from wirebound_lab.bench import conv_workload
from wirebound_lab.bench.conv_memory import NETWORK, QUICK_NETWORK, measure_memory
from wirebound_lab.bench.conv_workload import ConvProblem, ConvWorkload
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table
from wirebound_lab.bench.timing import race, threads
from wirebound_lab.bench.workload import Contender, require_equal

# Workload, goal for dense ÷ ours, and what the prototype reached; None where no goal was set.
ROWS: tuple[tuple[ConvWorkload, float | None, float | None], ...] = (
    (ConvWorkload(64, 5, 12, 0.05, 32), 8.0, 7.4),
    (ConvWorkload(64, 5, 12, 0.20, 32), 2.5, 2.3),
    (ConvWorkload(64, 3, 28, 0.05, 1), None, None),
    (ConvWorkload(512, 3, 8, 0.01, 16), None, None),
)
NOTES = (
    "Work of a layer: forward, gradient to the input, gradient of the weights (at the active positions if sparse); "
    "float32, no bias, images keep their size.",
    "dense, kernel: the functions themselves, results made anew. module: forward and backward through autograd.",
)


def line_up(problem: ConvProblem) -> list[Contender]:
    """All contenders for a problem, their answers found equal."""
    found = [
        conv_workload.dense_kernel(problem),
        conv_workload.dense_module(problem),
        conv_workload.masked_module(problem),
        conv_workload.our_module(problem),
        conv_workload.our_kernel(problem),
    ]
    expected = found[0].answer()
    for contender in found[1:]:
        require_equal(contender, expected)
    return found


def measure_conv(workload: ConvWorkload, settings: Settings) -> Measurement:
    """One workload, all contenders."""
    settings.say(f"conv {workload.label}")
    contenders = line_up(ConvProblem(workload))
    times = race({c.name: c.run for c in contenders}, settings.seconds, settings.rounds)
    best = {name: timing.best for name, timing in times.items()}
    numbers = {
        "dense ÷ kernel": best["dense"] / best["kernel"],
        "dense ÷ module, both modules": best["dense module"] / best["module"],
        "masked ÷ module": best["masked module"] / best["module"],
    }
    return Measurement(workload.label, times, numbers)


def measure(settings: Settings) -> Section:
    found: list[Measurement] = []
    goals: list[Goal] = []
    with threads(settings.threads):
        for workload, wanted, prototype in ROWS:
            measurement = measure_conv(workload, settings)
            found.append(measurement)
            if wanted is not None:
                reached = measurement.numbers["dense ÷ kernel"]
                goals.append(
                    Goal(f"Conv {workload.label}: dense ÷ ours, kernel", wanted, reached, prototype=prototype)
                )
    memory, explained = measure_memory(QUICK_NETWORK if settings.quick else NETWORK, settings)
    tables = [Table("One convolution's work", found), Table("Memory of a wide network", memory)]
    return Section("conv", "Convolutions", tables, goals, [*NOTES, explained])
