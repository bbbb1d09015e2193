"""Linear layers: dense torch, masked dense, torch's CSR and ours; one and two threads; the limits of the machine."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from wirebound import ops

from . import contenders as ways
from . import csr, machine
from .contenders import LinearProblem, LinearWorkload
from .contest import Contender, Contest, Measurement, Ratio, Section, Settings, Table, Wanted, compete, threads

KERNEL = Ratio("dense ÷ kernel", "dense", "kernel", "Linear {}: dense ÷ ours, kernel")
MODULE = Ratio("dense ÷ module, both modules", "dense module", "module", "Linear {}: dense ÷ ours, module")
CSR = Ratio("torch CSR ÷ kernel", "torch CSR", "kernel")
CSR_GOAL = Wanted(avx2=2.5, avx512=2.2)  # in the worst cell of the table
TRANSPOSED = Ratio("CSR transposed ÷ kernel", "CSR transposed", "kernel")
MASKED = Ratio("masked ÷ module", "masked module", "module")
GAIN = Ratio("gain", "1 thread", "2 threads", "2 threads against 1, {}")
_MATRIX, _STREAM = 1536, 32 << 20  # the stream: 128 MB of float32, more than any cache here
LIMIT_LAYERS = (
    (784, 300, 0.01, 32), (1024, 1024, 0.01, 32), (1024, 1024, 0.05, 32), (1024, 1024, 0.05, 128),
    (1024, 1024, 0.20, 128), (4096, 4096, 0.01, 32), (10_000, 10_000, 0.01, 32),
)  # fmt: skip


def line_up(problem: LinearProblem) -> tuple[list[Contender], str]:
    """All contenders for a problem; and the CSR formulation that was fastest."""
    by_csr, by_csr_transposed, formulation = csr.kernels(problem)
    dense = [ways.dense_kernel(problem), problem.dense_module()]
    ours = [ways.through_ops(problem, "reference", reference=True), problem.module()]
    if ops.native_available():
        ours += [ways.through_ops(problem), ways.kernel(problem)]
    return [*dense, by_csr, by_csr_transposed, problem.masked_module(F.linear), *ours], formulation


LAYERS = Contest(
    "One layer's work",
    (
        (LinearWorkload(784, 300, 0.01, 32), {KERNEL.name: Wanted(25, 16), MODULE.name: Wanted(6.5, 7)}),
        (LinearWorkload(1024, 1024, 0.01, 32), {KERNEL.name: Wanted(38, 30), MODULE.name: Wanted(18, 18)}),
        (LinearWorkload(4096, 4096, 0.01, 32), {KERNEL.name: Wanted(60, 50), MODULE.name: Wanted(80, 80)}),
        (LinearWorkload(1024, 1024, 0.05, 32), {KERNEL.name: Wanted(12, 10)}),
        (LinearWorkload(1024, 1024, 0.05, 128), {KERNEL.name: Wanted(11, 8)}),
        (LinearWorkload(1024, 1024, 0.20, 32), {KERNEL.name: Wanted(3.5, 2.6)}),
        (LinearWorkload(1024, 1024, 0.20, 128), {KERNEL.name: Wanted(3.2, 2.2)}),
    ),
    lambda workload: line_up(LinearProblem(workload))[0],
    (KERNEL, MODULE, CSR, TRANSPOSED, MASKED),
)


def measure(settings: Settings) -> Section:
    formulations: dict[str, str] = {}

    def note_formulation(workload: LinearWorkload) -> list[Contender]:
        found, formulations[workload.label] = line_up(LinearProblem(workload))
        return found

    layers, goals = replace(LAYERS, line_up=note_formulation).run(settings)
    worst = min(found.numbers[CSR.name] for found in layers.measurements)
    goals += settings.goal("Linear, the worst of these: torch CSR ÷ ours, kernel", CSR_GOAL, worst)
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
    return Section("linear", "Linear layers", [layers], goals, notes)


def on_threads(workload: LinearWorkload) -> list[Contender]:
    problem = LinearProblem(workload)
    return [ways.kernel(problem, name, threads=count) for name, count in (("1 thread", 1), ("2 threads", 2))]


THREADS = Contest(
    "Threads",
    (
        (LinearWorkload(1024, 1024, 0.05, 128), {GAIN.name: Wanted(1.85, 1.8)}),
        (LinearWorkload(1024, 1024, 0.05, 32), {GAIN.name: Wanted(1.6, 1.6)}),
    ),
    on_threads,
    (GAIN,),
    tolerance=0.0,  # the answers are the same to the bit
)


def measure_threads(settings: Settings) -> Section:
    why_not = "this machine has one core" if machine.cores() < 2 else ""
    if not ops.native_available():
        why_not = "the native kernels are not built"
    if why_not:
        return Section("threads", "2 threads against 1", [], notes=[f"Omitted: {why_not}."])
    table, goals = THREADS.run(settings, 2)
    for found in table.measurements:
        one, two = found.times.values()
        found.numbers["gain, medians"] = one.median / two.median
    notes = ["Bare kernels; both give the same bits. A machine that is busy with other work shows no gain."]
    return Section("threads", "2 threads against 1", [table], goals, notes)


def measure_machine(settings: Settings, matrix: int = _MATRIX, stream: int = _STREAM) -> Measurement:
    """What the machine can do at best: multiply-adds of a matrix product, bytes of a copy and of a triad in memory."""
    a, b, out = torch.rand(matrix, matrix), torch.rand(matrix, matrix), torch.empty(matrix, matrix)
    x, y, z = torch.rand(stream), torch.rand(stream), torch.empty(stream)
    contenders = [
        Contender(f"mm {matrix}", lambda: torch.mm(a, b, out=out)),
        Contender("copy", lambda: z.copy_(x)),
        Contender("triad", lambda: torch.add(x, y, alpha=3.0, out=z)),
    ]
    found = compete("this machine", contenders, settings)
    product, copy, triad = (timing.best for timing in found.times.values())
    found.numbers["GFLOP/s"] = 2e-9 * matrix**3 / product
    found.numbers["copy GB/s"] = 8e-9 * stream / copy
    found.numbers["triad GB/s"] = 12e-9 * stream / triad
    return found


def flops(problem: LinearProblem) -> int:
    """A multiply and an add for each connection and sample, three times."""
    return 6 * problem.budget * problem.workload.batch


def least_bytes(problem: LinearProblem) -> int:
    """What must be read or written once: x, y; x, dy, dx; packed rows and θ twice, dθ; the column pointers twice."""
    w = problem.workload
    activations = 4 * w.batch * (3 * w.n_in + 2 * w.n_out)
    return activations + problem.budget * (8 + 8 + 4) + 16 * (w.n_in + 1)


def measure_share(workload: LinearWorkload, limits: Measurement, settings: Settings) -> Measurement:
    problem = LinearProblem(workload)
    found = compete(workload.label, [ways.kernel(problem)], settings)
    seconds = found.times["kernel"].best
    rate, traffic = 1e-9 * flops(problem) / seconds, 1e-9 * least_bytes(problem) / seconds
    bandwidth = max(limits.numbers["copy GB/s"], limits.numbers["triad GB/s"])
    numbers = {"GFLOP/s": rate, "% of peak": 100 * rate / limits.numbers["GFLOP/s"]}
    numbers |= {"GB/s, least traffic": traffic, "% of bandwidth": 100 * traffic / bandwidth}
    return replace(found, numbers=numbers)


def measure_limits(settings: Settings) -> Section:
    notes = [
        "Peak is a large float32 torch.mm on the same number of threads: what this machine reaches in practice. A "
        "sparse kernel loads and stores the vectors that a matrix product keeps in registers, so it meets the limit of "
        "loads and stores first.",
        "GFLOP/s counts 6·K·B operations a layer; least traffic counts every array once, as if caches were perfect.",
    ]
    layers = [LinearWorkload(*sizes) for sizes in (LIMIT_LAYERS[1:4] if settings.quick else LIMIT_LAYERS)]
    with threads(settings.threads):
        limits = measure_machine(settings)
        tables = [Table("Limits of the machine", [limits])]
        if ops.native_available():
            tables.append(Table("Our kernels", [measure_share(w, limits, settings) for w in layers]))
        else:
            notes.append("Shares are omitted: the native kernels are not built.")
    return Section("limits", "Limits of the machine", tables, notes=notes)
