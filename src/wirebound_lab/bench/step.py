"""A whole training step: dense torch with plain SGD against full DEEP R, by ordinary modules and fused. Its cost
depends on how much is rewired: the made-up images can be learned, and are lit and rewired as much as MNIST."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import ModuleEngine
from wirebound.methods import Method
from wirebound.nn.sparse_layer import sparse_layers, wirings
from wirebound.nn.sparsify import to_dense

from .contenders import at_connections, gradient_of, signed
from .contest import Call, Contender, Goal, Measurement, Section, Settings, Table, WrongAnswerError, compete, threads

INPUTS, CLASSES, BATCH, CONNECTIVITY, LR, L1, NOISE = 784, 10, 10, 0.01, 0.05, 1e-4, 1e-6
SCALE = 1 / 255  # of a byte
_LIT = 0.19  # share of pixels above 0, as in MNIST
_ALIKE = 0.5  # how much images of a class have in common; at this value as many are rewired as on MNIST
HIDDEN = ((200, 200), (300, 100))
GOALS = {"modules": (2.5, 2.1), "fused": (45.0, 40.0)}  # for the first network, and what the prototype reached
STEPS = 256  # of an epoch of the examples
WARM_UP = 1024  # steps of training before the first that is timed
FUSED_STEPS = 512  # taken by one call of the fused engine
DENSE, MODULES, FUSED = "dense, plain SGD", "ours, modules, DEEP R", "ours, fused, DEEP R"


@dataclass(frozen=True)
class MadeImages:
    """Images as bytes, which is how MNIST comes and how the fused path takes it, the same as numbers, and labels."""

    pixels: Tensor
    y: Tensor

    @functools.cached_property
    def x(self) -> Tensor:
        return self.pixels * SCALE

    @staticmethod
    def make(inputs: int, classes: int, count: int, seed: int = 0) -> MadeImages:
        generator = torch.Generator().manual_seed(seed)
        prototypes = torch.rand(classes, inputs, generator=generator)
        y = torch.randint(classes, (count,), generator=generator)
        scores = _ALIKE * prototypes[y] + (1 - _ALIKE) * torch.rand(count, inputs, generator=generator)
        dark = inputs - max(1, round(_LIT * inputs))
        lit = scores > scores.kthvalue(dark, dim=1, keepdim=True).values
        brightness = 0.3 + 0.7 * torch.rand(count, inputs, generator=generator)
        return MadeImages((255 * torch.where(lit, brightness, 0.0)).round().to(torch.uint8), y)

    def batches(self, size: int) -> list[tuple[Tensor, Tensor]]:
        return list(zip(torch.split(self.x, size), torch.split(self.y, size), strict=True))


def build(hidden: Sequence[int], inputs: int = INPUTS, *, dense: bool = False) -> tuple[nn.Module, Method]:
    """A network with the paper's settings: SGD, η = 0.05, ℓ1, noise, rewiring in every step."""
    sizes = pairwise((inputs, *hidden, CLASSES))
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        layers = [module for n_in, n_out in sizes for module in (nn.Linear(n_in, n_out, bias=False), nn.ReLU())]
    model: nn.Module = nn.Sequential(*layers[:-1])
    if not dense:
        model = wb.sparsify(model, CONNECTIVITY, allocation="paper")
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    if dense:
        return model, wb.Dense(model, optimizer)
    temperature = wb.schedule.noise_amplitude(NOISE)
    return model, wb.DeepR(model, optimizer, l1=L1, temperature=temperature, newborns="share")


def fused_engine(model: nn.Module, method: Method, examples: MadeImages) -> FusedEngine | str:
    """The fused engine for this model, or why there is none."""
    return why_not_fused(model, method) or FusedEngine(model, method, examples.pixels, examples.y, scale=SCALE)


class TrainedNetwork:
    """A network in the middle of its training, which can go back to that point."""

    def __init__(self, hidden: Sequence[int], images: MadeImages, warm_up: int = WARM_UP, dense: bool = False) -> None:
        self.model, self.method = build(hidden, images.x.shape[1], dense=dense)
        self.batches = cycle(images.batches(BATCH))
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
        x, y = next(self.batches)
        self.method.optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(self.model(x), y))
        type(self.method.optimizer).step(self.method.optimizer)


def fused_steps(trained: TrainedNetwork, examples: MadeImages, steps: int = FUSED_STEPS) -> Call | str:
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


def check_gradients(hidden: Sequence[int], examples: MadeImages) -> None:
    """The sparse model computes the loss and the gradients of its dense twin."""
    model, _ = build(hidden, examples.x.shape[1])
    twin = to_dense(model)
    x, y = examples.batches(BATCH)[0]
    losses = [F.cross_entropy(network(x), y) for network in (model, twin)]
    torch.autograd.backward(losses)
    (wiring,) = wirings(model)
    weights = [twin.get_parameter(f"{name}.weight") for name, _ in sparse_layers(model)]
    expected = signed(wiring, at_connections(wiring, list(map(gradient_of, weights))))
    if not torch.allclose(gradient_of(wiring.theta), expected, rtol=1e-3, atol=1e-6):
        raise WrongAnswerError("step: gradients differ from the dense twin's")
    if not torch.allclose(losses[0], losses[1], rtol=1e-5, atol=1e-6):
        raise WrongAnswerError("step: the loss differs from the dense twin's")


def check_fused(hidden: Sequence[int], examples: MadeImages, steps: int = 16) -> None:
    """Fused steps lead where module steps lead: the same wiring, the same weights."""
    found = []
    for fused in (False, True):
        model, method = build(hidden, examples.x.shape[1])
        modules = ModuleEngine(model, method, examples.x, examples.y)
        engine = fused_engine(model, method, examples) if fused else modules
        if isinstance(engine, str):
            return
        list(engine.epoch(torch.arange(steps * BATCH), [LR] * steps, BATCH, steps))
        (wiring,) = wirings(model)
        wiring.check()
        found.append((wiring.packed_rows, wiring.theta.detach()))
    (rows, theta), (rows_fused, theta_fused) = found
    if not torch.equal(rows, rows_fused) or not torch.allclose(theta, theta_fused, rtol=1e-3, atol=1e-5):
        raise WrongAnswerError("step: the fused path differs from the module path")


def measure_step(hidden: Sequence[int], settings: Settings) -> tuple[Measurement, str]:
    """One network; and why the fused path was omitted, if it was."""
    label = "-".join(map(str, (INPUTS, *hidden, CLASSES)))
    examples = MadeImages.make(INPUTS, CLASSES, STEPS * BATCH)
    check_gradients(hidden, examples)
    check_fused(hidden, examples)
    dense, modules, fused = (TrainedNetwork(hidden, examples, dense=dense) for dense in (True, False, False))
    contenders = [
        Contender(DENSE, dense.plain_step, prepare=dense.go_back),
        Contender(MODULES, modules.step, prepare=modules.go_back),
    ]
    run = fused_steps(fused, examples)
    if not isinstance(run, str):
        contenders.append(Contender(FUSED, run, prepare=fused.go_back))
    found = compete(f"{label}, {100 * CONNECTIVITY:g} %, batch {BATCH}", contenders, settings)
    times = found.times
    if FUSED in times:
        fused_call = times[FUSED]
        times[FUSED] = replace(fused_call, best=fused_call.best / FUSED_STEPS, median=fused_call.median / FUSED_STEPS)
    ours = {"modules": (MODULES, modules), "fused": (FUSED, fused)}
    timed = {short: entry for short, entry in ours.items() if entry[0] in times}
    numbers = {f"dense ÷ {short}": times[DENSE].best / times[name].best for short, (name, _) in timed.items()}
    numbers |= {f"replaced in a step, {short}": net.rewired / net.steps for short, (_, net) in timed.items()}
    return replace(found, numbers=numbers), run if isinstance(run, str) else ""


def measure(settings: Settings) -> Section:
    with threads(settings.threads):
        measured = [measure_step(hidden, settings) for hidden in HIDDEN]
    found, missing = [measurement for measurement, _ in measured], measured[-1][1]
    goals = []
    for path, (wanted, prototype) in GOALS.items():
        if f"dense ÷ {path}" in found[0].numbers:
            subject = f"training step {found[0].workload}: dense ÷ ours, {path}"
            goals.append(Goal(subject, wanted, found[0].numbers[f"dense ÷ {path}"], prototype=prototype))
    notes = [
        "Dense takes plain SGD steps; ours all of DEEP R (SGD, ℓ1, noise, death, rebirth) with the paper's settings, "
        "no biases. Batches are cut before the clock starts, except for the fused path, which gathers its own within "
        f"it, {FUSED_STEPS} steps in a call.",
        f"All start from {WARM_UP} steps of training and go back there before each turn. The images are made up to be "
        "like MNIST in what costs time: 19 % of pixels lit, and about as many connections replaced in a step (the "
        "table says how many; on MNIST itself 20 to 80 in 784-200-200-10 during the first epoch).",
    ]
    if missing:
        notes.append(f"The fused path was omitted: {missing}.")
    return Section("step", "Whole training step", [Table("Training step", found)], goals, notes)
