"""Training steps of the paper's perceptron on MNIST, in the steady state: dense torch and torch's CSR with plain SGD against
all of DEEP R, by ordinary modules and fused. After a few epochs, far more connections are replaced in a step than at the
start, and the cost of a step depends on that."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import Engine, ModuleEngine
from wirebound.methods import Method
from wirebound.nn.sparse_layer import sparse_layers, wirings
from wirebound.nn.sparsify import to_dense
from wirebound_lab.data import DataUnavailable, load

from .contenders import gradient_of, require_twin
from .contest import Call, Contender, Measurement, Section, Settings, Table, Wanted, WrongAnswerError, compete, threads
from .csr import require_csr_twin, with_csr

SIZES = (784, 300, 100, 10)
BATCH, CONNECTIVITY, LR, L1, NOISE = 10, 0.01, 0.05, 1e-4, 1e-6  # the paper's
SCALE = 1 / 255  # of a byte
EPOCHS = 4  # of training before the first step that is timed; from the third on, about 220 are replaced in a step
FUSED_STEPS = 512  # taken by one call of the fused engine
DENSE, CSR, MODULES, FUSED = "dense, SGD", "torch CSR, SGD", "ours, modules, DEEP R", "ours, fused, DEEP R"
GOALS = {"modules": Wanted(avx2=3.5, avx512=3.5), "fused": Wanted(avx2=30, avx512=30)}


@dataclass(frozen=True)
class Images:
    """Images as bytes, which is how MNIST comes and how the fused path takes it, the same as numbers, and labels."""

    pixels: Tensor
    y: Tensor

    @property
    def x(self) -> Tensor:
        return self.pixels * SCALE

    def batches(self, count: int) -> list[tuple[Tensor, Tensor]]:
        taken = slice(0, count * BATCH)
        return list(zip((self.pixels[taken] * SCALE).split(BATCH), self.y[taken].split(BATCH), strict=True))


def build(sizes: Sequence[int] = SIZES, *, dense: bool = False) -> tuple[nn.Module, Method]:
    """A network with the paper's settings: SGD, η = 0.05, ℓ1, noise, rewiring in every step."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair, bias=False), nn.ReLU())]
    model: nn.Module = nn.Sequential(*layers[:-1])
    if not dense:
        model = wb.sparsify(model, CONNECTIVITY, allocation="paper")
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    if dense:
        return model, wb.Dense(model, optimizer)
    temperature = wb.schedule.noise_amplitude(NOISE)
    return model, wb.DeepR(model, optimizer, l1=L1, temperature=temperature, newborns="share")


def engine_of(model: nn.Module, method: Method, images: Images, *, fused: bool = True) -> Engine:
    """Fused where that is possible and wanted; modules elsewhere."""
    if fused and not why_not_fused(model, method):
        return FusedEngine(model, method, images.pixels, images.y, scale=SCALE)
    return ModuleEngine(model, method, images.x, images.y)


def steady_state(images: Images, sizes: Sequence[int] = SIZES, epochs: int = EPOCHS) -> dict[str, Any]:
    """Model and method after some epochs, as ``Trained`` takes them."""
    model, method = build(sizes)
    engine, generator = engine_of(model, method, images), torch.Generator().manual_seed(0)
    steps = len(images.y) // BATCH
    for _ in range(epochs):
        order = torch.randperm(len(images.y), generator=generator)[: steps * BATCH]
        list(engine.epoch(order, [LR] * steps, BATCH, steps))
    return copy.deepcopy({"model": model.state_dict(), "method": method.state_dict()})


class Trained:
    """A sparse network in the middle of its training, which can go back to that point; it counts what is replaced."""

    def __init__(self, images: Images, state: dict[str, Any], sizes: Sequence[int] = SIZES) -> None:
        self.model, self.method = build(sizes)
        self.images, self.state = images, state
        self.batches = cycle(images.batches(FUSED_STEPS))
        self.rewired = self.steps = 0
        self.go_back()

    def go_back(self) -> None:
        self.model.load_state_dict(self.state["model"])
        self.method.load_state_dict(self.state["method"])

    def step(self) -> None:
        """The loop of every torch tutorial; the method in the place of the optimiser."""
        x, y = next(self.batches)
        self.method.zero_grad()
        torch.autograd.backward(F.cross_entropy(self.model(x), y))
        self.rewired += self.method.step().rewired
        self.steps += 1

    def fused_steps(self, steps: int = FUSED_STEPS) -> Call:
        """So many fused steps in a call."""
        engine = engine_of(self.model, self.method, self.images)
        order = torch.randperm(len(self.images.y), generator=torch.Generator().manual_seed(0))
        parts = cycle([part for part in order.split(steps * BATCH) if len(part) == steps * BATCH])

        def run() -> None:
            for window in engine.epoch(next(parts), [LR] * steps, BATCH, steps):
                self.rewired += sum(window.newborns)
                self.steps += window.step_to - window.step_from + 1

        return run


def plain_step(model: nn.Module, images: Images) -> Call:
    """A step of plain SGD."""
    optimizer, batches = torch.optim.SGD(model.parameters(), lr=LR), cycle(images.batches(FUSED_STEPS))

    def run() -> None:
        x, y = next(batches)
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(x), y))
        optimizer.step()

    return run


def check_gradients(images: Images, sizes: Sequence[int] = SIZES) -> None:
    """The sparse model, by our layers and by torch's CSR, computes the loss and the gradients of its dense twin."""
    model, _ = build(sizes)
    x, y = images.batches(1)[0]
    twin, names = to_dense(model), [name for name, _ in sparse_layers(model)]
    loss = lambda network: F.cross_entropy(network(x), y)  # noqa: E731
    gradients = lambda: [gradient_of(twin.get_parameter(f"{name}.weight")) for name in names]  # noqa: E731
    require_csr_twin(with_csr(model), twin, loss, gradients)
    require_twin(model, twin, loss, gradients)


def check_fused(images: Images, sizes: Sequence[int] = SIZES, steps: int = 16) -> None:
    """Fused steps lead where module steps lead: the same wiring, the same weights."""
    found = []
    for fused in (False, True):
        model, method = build(sizes)
        engine = engine_of(model, method, images, fused=fused)
        list(engine.epoch(torch.arange(steps * BATCH), [LR] * steps, BATCH, steps))
        (wiring,) = wirings(model)
        wiring.check()
        found.append((wiring.packed_rows, wiring.theta.detach()))
    (rows, theta), (rows_fused, theta_fused) = found
    if not torch.equal(rows, rows_fused) or not torch.allclose(theta, theta_fused, rtol=1e-3, atol=1e-5):
        raise WrongAnswerError("step: the fused path differs from the module path")


def measure_step(images: Images, settings: Settings, sizes: Sequence[int] = SIZES, epochs: int = EPOCHS) -> Measurement:
    check_gradients(images, sizes)
    check_fused(images, sizes)
    state = steady_state(images, sizes, epochs)
    modules, fused = Trained(images, state, sizes), Trained(images, state, sizes)
    contenders = [
        Contender(DENSE, plain_step(build(sizes, dense=True)[0], images)),
        Contender(CSR, plain_step(with_csr(modules.model), images)),
        Contender(MODULES, modules.step, prepare=modules.go_back),
    ]
    if not why_not_fused(fused.model, fused.method):
        contenders.append(Contender(FUSED, fused.fused_steps(), prepare=fused.go_back))
    label = f"{'-'.join(map(str, sizes))}, {100 * CONNECTIVITY:g} %, batch {BATCH}"
    found = compete(label, contenders, settings)
    times = found.times
    if FUSED in times:
        times[FUSED] = replace(times[FUSED], best=times[FUSED].best / FUSED_STEPS, median=times[FUSED].median / FUSED_STEPS)
    ours = {"modules": (MODULES, modules), "fused": (FUSED, fused)}
    for short, (name, network) in ours.items():
        if name in times:
            found.numbers[f"dense ÷ {short}"] = times[DENSE].best / times[name].best
            found.numbers[f"replaced in a step, {short}"] = network.rewired / network.steps
    return found


def measure(settings: Settings) -> Section:
    title = "MNIST, training step in the steady state"
    try:
        data = load("mnist", fetch=False)
    except DataUnavailable as error:
        return Section("mnist", title, [], notes=[f"Omitted: {error}"])
    with threads(settings.threads):
        found = measure_step(Images(data.train_x.flatten(1), data.train_y), settings, epochs=1 if settings.quick else EPOCHS)
    goals = []
    for path, wanted in GOALS.items():
        if (ratio := f"dense ÷ {path}") in found.numbers:
            goals += settings.goal(f"MNIST {found.workload}, steady state: dense ÷ ours, {path}", wanted, found.numbers[ratio])
    notes = [
        "Dense and CSR take plain SGD steps, CSR with fixed connections; ours all of DEEP R (SGD, ℓ1, noise, death, rebirth) "
        "with the paper's settings, no biases. Batches are cut before the clock starts, except for the fused path, which "
        f"gathers its own within it, {FUSED_STEPS} steps in a call.",
        f"Ours start from {EPOCHS} epochs of training (1 with --quick, where fewer are replaced) and go back there before "
        "each turn; the table says how many connections are replaced in a step.",
    ]
    return Section("mnist", title, [Table("Training step", [found])], goals, notes)
