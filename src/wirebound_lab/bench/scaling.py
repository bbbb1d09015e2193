"""Two threads against one."""

from __future__ import annotations

import torch

from wirebound import ops
from wirebound_lab.bench import machine, ours
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table, WrongAnswerError
from wirebound_lab.bench.timing import race, threads
from wirebound_lab.bench.workload import Problem, Workload

# workload, goal, prototype
ROWS = ((Workload(1024, 1024, 0.05, 128), 1.8, 1.5), (Workload(1024, 1024, 0.05, 32), 1.5, 1.14))


def measure_threads(workload: Workload, settings: Settings, count: int = 2) -> Measurement:
    """The kernels on one and on ``count`` threads; the answers are the same to the bit."""
    settings.say(f"threads {workload.label}")
    problem = Problem(workload)
    alone = ours.kernel(problem, "1 thread", threads=1)
    together = ours.kernel(problem, f"{count} threads", threads=count)
    one, two = alone.answer(), together.answer()
    if not all(torch.equal(getattr(one, part), getattr(two, part)) for part in ("y", "dx", "dw")):
        raise WrongAnswerError(f"threads: {count} threads give other bits than one")
    times = race({alone.name: alone.run, together.name: together.run}, settings.seconds, settings.rounds)
    gain = times[alone.name].best / times[together.name].best
    middle = times[alone.name].median / times[together.name].median
    return Measurement(workload.label, times, {"gain": gain, "gain, medians": middle})


def measure(settings: Settings) -> Section:
    title = "2 threads against 1"
    if not ops.native_available():
        return Section("threads", title, [], notes=["Left out: the native kernels are not built."])
    if machine.cores() < 2:
        return Section("threads", title, [], notes=["Left out: this machine has one core."])
    found, goals = [], []
    with threads(2):
        for workload, wanted, prototype in ROWS:
            measurement = measure_threads(workload, settings)
            found.append(measurement)
            subject = f"2 threads against 1, {workload.label}"
            goals.append(Goal(subject, wanted, measurement.numbers["gain"], prototype=prototype))
    notes = ["Bare kernels; both give the same bits. A machine that is busy with other work shows no gain."]
    return Section("threads", title, [Table("Threads", found)], goals, notes)
