"""Linear layers: dense torch, masked dense, torch's CSR and ours, and the density where dense catches up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wirebound import ops
from wirebound_lab.bench import baselines, ours
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table
from wirebound_lab.bench.timing import race, threads
from wirebound_lab.bench.workload import Contender, Problem, Workload, require_equal


@dataclass(frozen=True)
class Wanted:
    """Goals of one workload, and what the prototype reached."""

    workload: Workload
    kernel: float
    csr: float
    prototype: float
    module: float | None = None
    prototype_module: float | None = None


ROWS = (
    Wanted(Workload(784, 300, 0.01, 32), 25, 3, 22, 6.5, 6.0),
    Wanted(Workload(1024, 1024, 0.01, 32), 33, 2.2, 29, 17, 16),
    Wanted(Workload(4096, 4096, 0.01, 32), 55, 2.3, 52, 75, 76),
    Wanted(Workload(1024, 1024, 0.05, 32), 11, 2.3, 10),
    Wanted(Workload(1024, 1024, 0.05, 128), 9.5, 2.3, 8.5),
    Wanted(Workload(1024, 1024, 0.20, 32), 3.2, 2.3, 2.8),
    Wanted(Workload(1024, 1024, 0.20, 128), 2.7, 2.3, 2.4),
)
DENSITIES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.30, 0.40, 0.50, 0.60, 0.70)
DENSITY_GOAL = 0.50
NOTES = (
    "Work of a layer: forward, gradient to the input, gradient of the weights (at the active positions if "
    "sparse); float32, no bias.",
    "dense, kernel: results go into tensors that exist already. ops: the same kernels, results made anew. "
    "module: forward and backward through autograd.",
    "CSR transposed: activations kept transposed between layers, which torch's usual layers do not offer. "
    "Both CSR contenders get an up-to-date second copy of W for Wᵀ free of charge, and may return results "
    "transposed.",
)


def line_up(problem: Problem) -> tuple[list[Contender], str]:
    """All contenders for a problem, their answers found equal; and the CSR formulation that was fastest."""
    csr, csr_transposed, formulation = baselines.csr_kernels(problem)
    found = [
        baselines.dense_kernel(problem),
        baselines.dense_module(problem),
        csr,
        csr_transposed,
        baselines.masked_module(problem),
        ours.through_ops(problem, "reference", reference=True),
        ours.module(problem),
    ]
    if ops.native_available():
        found += [ours.through_ops(problem, "ops"), ours.kernel(problem)]
    expected = found[0].answer()
    for contender in found[1:]:
        require_equal(contender, expected)
    return found, formulation


def measure_layer(workload: Workload, settings: Settings) -> tuple[Measurement, str]:
    """One workload, all contenders."""
    settings.say(f"linear {workload.label}")
    contenders, formulation = line_up(Problem(workload))
    times = race({c.name: c.run for c in contenders}, settings.seconds, settings.rounds)
    best = {name: timing.best for name, timing in times.items()}
    mine = best.get("kernel", best["reference"])
    numbers = {
        "dense ÷ kernel": best["dense"] / mine,
        "dense ÷ module, both modules": best["dense module"] / best["module"],
        "torch CSR ÷ kernel": best["torch CSR"] / mine,
        "CSR transposed ÷ kernel": best["CSR transposed"] / mine,
        "masked ÷ module": best["masked module"] / best["module"],
    }
    return Measurement(workload.label, times, numbers), formulation


def goals_of(row: Wanted, found: Measurement) -> list[Goal]:
    label, numbers = row.workload.label, found.numbers
    reached = numbers["dense ÷ kernel"]
    goals = [Goal(f"Linear {label}: dense ÷ ours, kernel", row.kernel, reached, prototype=row.prototype)]
    if row.module is not None:
        reached = numbers["dense ÷ module, both modules"]
        goals.append(
            Goal(f"Linear {label}: dense ÷ ours, module", row.module, reached, prototype=row.prototype_module)
        )
    goals.append(Goal(f"Linear {label}: torch CSR ÷ ours, kernel", row.csr, numbers["torch CSR ÷ kernel"]))
    return goals


def measure_density(
    settings: Settings, densities: Sequence[float] = DENSITIES, size: int = 1024, batch: int = 32
) -> list[Measurement]:
    """Dense against ours at rising density."""
    found = []
    for density in densities:
        settings.say(f"density {density:.0%}")
        problem = Problem(Workload(size, size, density, batch))
        native = ops.native_available()
        mine = ours.kernel(problem) if native else ours.through_ops(problem, "kernel", reference=True)
        dense = baselines.dense_kernel(problem)
        require_equal(mine, dense.answer())
        times = race({"dense": dense.run, "kernel": mine.run}, settings.seconds, settings.rounds)
        ratio = times["dense"].best / times["kernel"].best
        numbers = {"density": density, "dense ÷ kernel": ratio}
        found.append(Measurement(f"{100 * density:g} %", times, numbers))
    return found


def never_slower_up_to(sweep: Sequence[Measurement]) -> float:
    """The highest density of a rising sweep up to which ours is at least as fast as dense everywhere."""
    reached = 0.0
    for measurement in sweep:
        if measurement.numbers["dense ÷ kernel"] < 1:
            break
        reached = measurement.numbers["density"]
    return reached


def measure(settings: Settings) -> Section:
    tables: list[Measurement] = []
    goals: list[Goal] = []
    formulations: dict[str, str] = {}
    with threads(settings.threads):
        for row in ROWS:
            measurement, formulations[row.workload.label] = measure_layer(row.workload, settings)
            tables.append(measurement)
            goals += goals_of(row, measurement)
        sweep = measure_density(settings)
    reached = 100 * never_slower_up_to(sweep)
    goals.append(Goal("never slower than dense up to a density of", 100 * DENSITY_GOAL, reached, "%"))
    fastest = ", ".join(f"{label}: {name}" for label, name in formulations.items())
    explained = (
        "Fastest CSR formulation on the same inputs (views: W @ x.t(); copies: W @ x.t().contiguous(); "
        f"right: x @ W.t()): {fastest}."
    )
    size = Workload(1024, 1024, 0, 32)
    title = f"Density sweep, {size.n_in}→{size.n_out}, B {size.batch}"
    both = [Table("One layer's work", tables), Table(title, sweep)]
    return Section("linear", "Linear layers", both, goals, [*NOTES, explained])
