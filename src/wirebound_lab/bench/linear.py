"""Linear layers: dense torch, masked dense, torch's CSR and ours; the density where dense catches up; two threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wirebound import ops
from wirebound_lab.bench import linear_contenders as ways
from wirebound_lab.bench import machine
from wirebound_lab.bench.contest import Contender, Contest, Ratio, compete
from wirebound_lab.bench.linear_contenders import LinearProblem, LinearWorkload
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table
from wirebound_lab.bench.timing import threads

KERNEL = Ratio("dense ÷ kernel", "dense", "kernel", "Linear {}: dense ÷ ours, kernel")
MODULE = Ratio("dense ÷ module, both modules", "dense module", "module", "Linear {}: dense ÷ ours, module")
CSR = Ratio("torch CSR ÷ kernel", "torch CSR", "kernel", "Linear {}: torch CSR ÷ ours, kernel")
TRANSPOSED = Ratio("CSR transposed ÷ kernel", "CSR transposed", "kernel")
MASKED = Ratio("masked ÷ module", "masked module", "module")
GAIN = Ratio("gain", "1 thread", "2 threads", "2 threads against 1, {}")
DENSITIES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.30, 0.40, 0.50, 0.60, 0.70)
DENSITY_GOAL = 0.50


def line_up(problem: LinearProblem) -> tuple[list[Contender], str]:
    """All contenders for a problem; and the CSR formulation that was fastest."""
    csr, csr_transposed, formulation = ways.csr_kernels(problem)
    found = [
        ways.dense_kernel(problem),
        problem.dense_module(),
        csr,
        csr_transposed,
        problem.masked(),
        ways.through_ops(problem, "reference", reference=True),
        problem.module(),
    ]
    if ops.native_available():
        found += [ways.through_ops(problem), ways.kernel(problem)]
    return found, formulation


LAYERS = Contest(
    "One layer's work",
    (
        (LinearWorkload(784, 300, 0.01, 32), {KERNEL.name: (25, 22), MODULE.name: (6.5, 6.0), CSR.name: (3, None)}),
        (LinearWorkload(1024, 1024, 0.01, 32), {KERNEL.name: (33, 29), MODULE.name: (17, 16), CSR.name: (2.2, None)}),
        (LinearWorkload(4096, 4096, 0.01, 32), {KERNEL.name: (55, 52), MODULE.name: (75, 76), CSR.name: (2.3, None)}),
        (LinearWorkload(1024, 1024, 0.05, 32), {KERNEL.name: (11, 10), CSR.name: (2.3, None)}),
        (LinearWorkload(1024, 1024, 0.05, 128), {KERNEL.name: (9.5, 8.5), CSR.name: (2.3, None)}),
        (LinearWorkload(1024, 1024, 0.20, 32), {KERNEL.name: (3.2, 2.8), CSR.name: (2.3, None)}),
        (LinearWorkload(1024, 1024, 0.20, 128), {KERNEL.name: (2.7, 2.4), CSR.name: (2.3, None)}),
    ),
    lambda workload: line_up(LinearProblem(workload))[0],
    (KERNEL, MODULE, CSR, TRANSPOSED, MASKED),
)


def measure_density(
    settings: Settings, densities: Sequence[float] = DENSITIES, size: int = 1024, batch: int = 32
) -> list[Measurement]:
    """Dense against ours at rising density."""
    found = []
    for density in densities:
        problem = LinearProblem(LinearWorkload(size, size, density, batch))
        contenders = [ways.dense_kernel(problem), ways.bare(problem)]
        measured = compete(f"{100 * density:g} %", contenders, settings, [KERNEL])
        found.append(replace(measured, numbers={"density": density, **measured.numbers}))
    return found


def never_slower_up_to(sweep: Sequence[Measurement]) -> float:
    """The highest density of a rising sweep up to which ours is at least as fast as dense everywhere."""
    reached = 0.0
    for measurement in sweep:
        if measurement.numbers[KERNEL.name] < 1:
            break
        reached = measurement.numbers["density"]
    return reached


def measure(settings: Settings) -> Section:
    formulations: dict[str, str] = {}

    def note_formulation(workload: LinearWorkload) -> list[Contender]:
        found, formulations[workload.label] = line_up(LinearProblem(workload))
        return found

    layers, goals = replace(LAYERS, line_up=note_formulation).run(settings)
    with threads(settings.threads):
        sweep = measure_density(settings)
    reached = 100 * never_slower_up_to(sweep)
    goals.append(Goal("never slower than dense up to a density of", 100 * DENSITY_GOAL, reached, "%"))
    fastest = ", ".join(f"{label}: {name}" for label, name in formulations.items())
    notes = [
        "Work of a layer: forward, gradient to the input, gradient of the weights (at the active positions if sparse); "
        "float32, no bias.",
        "dense, kernel: results go into tensors that exist already. ops: the same kernels, results allocated. module: "
        "forward and backward through autograd.",
        "CSR transposed: activations kept transposed between layers, which torch's usual layers do not offer. Both CSR "
        "contenders get an up-to-date second copy of W for Wᵀ free of charge, and may return results transposed.",
        "Fastest CSR formulation on the same inputs (views: W @ x.t(); copies: W @ x.t().contiguous(); right: "
        f"x @ W.t()): {fastest}.",
    ]
    return Section("linear", "Linear layers", [layers, Table("Density sweep, 1024→1024, B 32", sweep)], goals, notes)


def on_threads(workload: LinearWorkload) -> list[Contender]:
    problem = LinearProblem(workload)
    return [ways.kernel(problem, name, threads=count) for name, count in (("1 thread", 1), ("2 threads", 2))]


THREADS = Contest(
    "Threads",
    (
        (LinearWorkload(1024, 1024, 0.05, 128), {GAIN.name: (1.8, 1.5)}),
        (LinearWorkload(1024, 1024, 0.05, 32), {GAIN.name: (1.5, 1.14)}),
    ),
    on_threads,
    (GAIN,),
    tolerance=0.0,  # the answers are the same to the bit
)


def measure_threads(settings: Settings) -> Section:
    """The kernels on one and on two threads."""
    title = "2 threads against 1"
    if not ops.native_available():
        return Section("threads", title, [], notes=["Omitted: the native kernels are not built."])
    if machine.cores() < 2:
        return Section("threads", title, [], notes=["Omitted: this machine has one core."])
    table, goals = THREADS.run(settings, 2)
    for found in table.measurements:
        one, two = found.times.values()
        found.numbers["gain, medians"] = one.median / two.median
    notes = ["Bare kernels; both give the same bits. A machine that is busy with other work shows no gain."]
    return Section("threads", title, [table], goals, notes)
