"""What a user without a compiler gets: plain torch in a fresh process, beside dense torch and torch's CSR."""

import torch

from . import contenders as ways
from . import csr
from .contenders import LinearProblem, LinearWorkload
from .contest import Measurement, Ratio, Section, Settings, Table, Timing, Wanted, compete
from .fresh_process import run_fresh

CSR = Ratio("torch CSR ÷ ours", "torch CSR", "ours")
DENSE = Ratio("dense ÷ ours", "dense", "ours")
LAYERS = (LinearWorkload(4096, 4096, 0.01, 32), LinearWorkload(1024, 1024, 0.05, 32))
GOAL = Wanted(avx2=0.8, avx512=0.8)  # of torch CSR ÷ ours, in the first layer


def measure_here(workload: list[float], seconds: float, rounds: int, threads: int) -> dict[str, float]:
    """Seconds of each contender in this process, which has no native library."""
    n_in, n_out, connectivity, batch = workload
    torch.set_num_threads(threads)
    problem = LinearProblem(LinearWorkload(int(n_in), int(n_out), connectivity, int(batch)))
    contenders = [ways.dense_kernel(problem), csr.kernels(problem)[0], ways.through_ops(problem, "ours")]
    found = compete("", contenders, Settings(seconds, rounds))
    return {name: timing.best for name, timing in found.times.items()}


def measure_layer(workload: LinearWorkload, settings: Settings) -> Measurement:
    settings.say(f"{workload.label}, without the native library")
    how = {"seconds": settings.seconds, "rounds": settings.rounds, "threads": settings.threads}
    best = run_fresh(measure_here, {"WIREBOUND_NATIVE": "0"}, workload=workload, **how)
    ratios = {ratio.name: best[ratio.slow] / best[ratio.fast] for ratio in (DENSE, CSR)}
    return Measurement(workload.label, {name: Timing(value, value, settings.rounds) for name, value in best.items()}, ratios)


def measure(settings: Settings) -> Section:
    found = [measure_layer(workload, settings) for workload in LAYERS]
    subject = f"without a compiler, Linear {LAYERS[0].label}: torch CSR ÷ ours"
    goals = settings.goal(subject, GOAL, found[0].numbers[CSR.name])
    notes = ["No native library (`WIREBOUND_NATIVE=0`): the work of a layer in plain torch operations, in a process of its own."]
    return Section("without-compiler", "Without a compiler", [Table("One layer's work in plain torch", found)], goals, notes)
