"""A whole training step: dense torch with plain SGD against full DEEP R, by ordinary modules and fused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import cycle

import torch
import torch.nn.functional as F

from wirebound_lab.bench.examples import Examples
from wirebound_lab.bench.networks import BATCH, CLASSES, CONNECTIVITY, INPUTS, LR, build, fused_engine
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table
from wirebound_lab.bench.step_checks import check_fused, check_gradients
from wirebound_lab.bench.timing import Timing, race, threads

HIDDEN = ((200, 200), (300, 100))
GOAL_MODULE, GOAL_FUSED = 2.5, 45.0  # for the first network
PROTOTYPE_MODULE, PROTOTYPE_FUSED = 2.1, 40.0
STEPS = 256  # of an epoch of the examples
WARM_UP = 1024  # steps of training before the first that is timed
FUSED_STEPS = 512  # taken by one call of the fused engine
DENSE, MODULES, FUSED = "dense, plain SGD", "ours, modules, DEEP R", "ours, fused, DEEP R"


class Trained:
    """A network in the middle of its training, which can go back to that point."""

    def __init__(
        self, hidden: Sequence[int], method: str, examples: Examples, warm_up: int = WARM_UP
    ) -> None:
        self.model, self.method = build(hidden, method, examples.x.shape[1])
        self.batches = cycle(examples.batches(BATCH))
        self.rewired = self.steps = 0
        for _ in range(warm_up):
            self.step()
        self.state = copy.deepcopy((self.model.state_dict(), self.method.state_dict()))
        self.rewired = self.steps = 0

    def go_back(self) -> None:
        self.model.load_state_dict(self.state[0])
        self.method.load_state_dict(self.state[1])

    def step(self) -> None:
        """The loop of every torch tutorial; the method in the place of the optimiser."""
        x, y = next(self.batches)
        self.method.zero_grad()
        torch.autograd.backward(F.cross_entropy(self.model(x), y))
        self.rewired += self.method.step().rewired
        self.steps += 1

    def plain_step(self) -> None:
        """The same with torch's optimiser itself: nothing of ours."""
        x, y = next(self.batches)
        self.method.optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(self.model(x), y))
        self.method.optimizer.step()


def fused_steps(trained: Trained, examples: Examples, steps: int = FUSED_STEPS) -> Callable[[], object] | str:
    """``steps`` fused steps in a call, or why there is no such path."""
    engine = fused_engine(trained.model, trained.method, examples)
    if isinstance(engine, str):
        return engine
    generator = torch.Generator().manual_seed(0)
    passes = -(-steps * BATCH // examples.y.numel())
    order = torch.cat([torch.randperm(examples.y.numel(), generator=generator) for _ in range(passes)])
    parts = cycle([part for part in torch.split(order, steps * BATCH) if part.numel() == steps * BATCH])
    rates = [LR] * steps

    def run() -> None:
        for window in engine.epoch(next(parts), rates, BATCH, steps):
            trained.rewired += sum(window.newborns)
            trained.steps += steps

    return run


def per_step(timing: Timing, steps: int) -> Timing:
    return Timing(timing.best / steps, timing.median / steps, timing.samples)


def measure_step(hidden: Sequence[int], settings: Settings) -> tuple[Measurement, str]:
    """One network; and why the fused path was left out, if it was."""
    label = "-".join(map(str, (INPUTS, *hidden, CLASSES)))
    settings.say(f"step {label}")
    examples = Examples.make(INPUTS, CLASSES, STEPS * BATCH)
    check_gradients(hidden, examples)
    check_fused(hidden, examples)
    nets = {DENSE: Trained(hidden, "dense", examples), MODULES: Trained(hidden, "deep-r", examples)}
    contenders: dict[str, Callable[[], object]] = {DENSE: nets[DENSE].plain_step, MODULES: nets[MODULES].step}
    nets[FUSED] = Trained(hidden, "deep-r", examples)
    fused = fused_steps(nets[FUSED], examples)
    if not isinstance(fused, str):
        contenders[FUSED] = fused
    prepare = {name: nets[name].go_back for name in contenders}
    times = race(contenders, settings.seconds, settings.rounds, prepare)
    numbers = {"dense ÷ modules": times[DENSE].best / times[MODULES].best}
    if FUSED in times:
        times[FUSED] = per_step(times[FUSED], FUSED_STEPS)
        numbers["dense ÷ fused"] = times[DENSE].best / times[FUSED].best
    for name, short in ((MODULES, "modules"), (FUSED, "fused")):
        if name in times:
            numbers[f"replaced in a step, {short}"] = nets[name].rewired / nets[name].steps
    workload = f"{label}, {100 * CONNECTIVITY:g} %, batch {BATCH}"
    return Measurement(workload, times, numbers), fused if isinstance(fused, str) else ""


def measure(settings: Settings) -> Section:
    found = []
    missing = ""
    with threads(settings.threads):
        for hidden in HIDDEN:
            measurement, missing = measure_step(hidden, settings)
            found.append(measurement)
    first = found[0]
    subject, reached = f"training step {first.workload}: dense ÷ ours", first.numbers
    goals = [Goal(f"{subject}, modules", GOAL_MODULE, reached["dense ÷ modules"], prototype=PROTOTYPE_MODULE)]
    if "dense ÷ fused" in reached:
        goals.append(
            Goal(f"{subject}, fused", GOAL_FUSED, reached["dense ÷ fused"], prototype=PROTOTYPE_FUSED)
        )
    notes = [
        "Dense takes plain SGD steps; ours all of DEEP R (SGD, ℓ1, noise, death, rebirth) with the paper's "
        "settings, no biases. Batches are cut before the clock starts, except for the fused path, which "
        f"gathers its own within it, {FUSED_STEPS} steps in a call.",
        f"All start from {WARM_UP} steps of training and go back there before each turn. The images are made up "
        "to be like MNIST in what costs time: 19 % of pixels lit, and about as many connections replaced in a "
        "step (the table says how many; on MNIST itself 20 to 80 in 784-200-200-10 during the first epoch).",
    ]
    if missing:
        notes.append(f"The fused path was left out: {missing}.")
    return Section("step", "Whole training step", [Table("Training step", found)], goals, notes)
