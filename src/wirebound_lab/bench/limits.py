"""What the machine can do at best, and the share of it that our kernels reach."""

from __future__ import annotations

import torch

from wirebound import ops
from wirebound_lab.bench import linear_contenders as ways
from wirebound_lab.bench.contest import Contender, compete
from wirebound_lab.bench.linear_contenders import LinearProblem, LinearWorkload
from wirebound_lab.bench.results import Measurement, Section, Settings, Table
from wirebound_lab.bench.timing import threads

_MATRIX = 1536
_STREAM_NUMBERS = 32 << 20  # 128 MB of float32, more than any cache here
LAYERS = (
    LinearWorkload(784, 300, 0.01, 32),
    LinearWorkload(1024, 1024, 0.01, 32),
    LinearWorkload(1024, 1024, 0.05, 32),
    LinearWorkload(1024, 1024, 0.05, 128),
    LinearWorkload(1024, 1024, 0.20, 128),
    LinearWorkload(4096, 4096, 0.01, 32),
    LinearWorkload(10_000, 10_000, 0.01, 32),
)


def measure_machine(settings: Settings, matrix: int = _MATRIX, stream: int = _STREAM_NUMBERS) -> Measurement:
    """Multiply-adds of a large matrix product, and bytes of a copy and of a triad in memory."""
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
    """One layer's kernels against the limits."""
    problem = LinearProblem(workload)
    found = compete(workload.label, [ways.kernel(problem)], settings)
    seconds = found.times["kernel"].best
    rate, traffic = 1e-9 * flops(problem) / seconds, 1e-9 * least_bytes(problem) / seconds
    bandwidth = max(limits.numbers["copy GB/s"], limits.numbers["triad GB/s"])
    found.numbers["GFLOP/s"] = rate
    found.numbers["% of peak"] = 100 * rate / limits.numbers["GFLOP/s"]
    found.numbers["GB/s, least traffic"] = traffic
    found.numbers["% of bandwidth"] = 100 * traffic / bandwidth
    return found


def measure(settings: Settings) -> Section:
    notes = [
        "Peak is a large float32 torch.mm on the same number of threads: what this machine reaches in practice. A "
        "sparse kernel loads and stores the vectors that a matrix product keeps in registers, so it meets the limit of "
        "loads and stores first.",
        "GFLOP/s counts 6·K·B operations a layer; least traffic counts every array once, as if caches were perfect.",
    ]
    layers = LAYERS[1:4] if settings.quick else LAYERS
    with threads(settings.threads):
        limits = measure_machine(settings)
        tables = [Table("Limits of the machine", [limits])]
        if ops.native_available():
            tables.append(Table("Our kernels", [measure_share(w, limits, settings) for w in layers]))
        else:
            notes.append("Shares are omitted: the native kernels are not built.")
    return Section("limits", "Limits of the machine", tables, notes=notes)
