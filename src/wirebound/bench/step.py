"""A whole training step: dense torch with plain SGD against full DEEP R, by ordinary modules and fused."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.bench.results import Goal, Measurement, Section, Settings, Table, WrongAnswerError
from wirebound.bench.timing import Timing, race, threads
from wirebound.methods import Method
from wirebound.nn.part import sparse_layers, wirings
from wirebound.nn.to_dense import to_dense
from wirebound.ops.layout import rows_of, signs_of
from wirebound.train.config import TrainConfig
from wirebound.train.engine import Engine, ModuleEngine
from wirebound.train.models import build_method, build_model, build_optimizer

INPUTS, CLASSES, BATCH, CONNECTIVITY = 784, 10, 10, 0.01
HIDDEN = ((200, 200), (300, 100))
GOAL_MODULE, GOAL_FUSED = 2.5, 45.0  # for the first network
PROTOTYPE_MODULE, PROTOTYPE_FUSED = 2.1, 40.0
_STEPS = 256  # of an epoch of the examples below


@dataclass(frozen=True)
class Examples:
    """Random images and labels, already cut into batches for those that take them one by one."""

    x: Tensor
    y: Tensor

    @staticmethod
    def make(inputs: int = INPUTS, steps: int = _STEPS, seed: int = 0) -> Examples:
        generator = torch.Generator().manual_seed(seed)
        count = steps * BATCH
        x = torch.rand(count, inputs, generator=generator)
        return Examples(x, torch.randint(CLASSES, (count,), generator=generator))

    @property
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(torch.split(self.x, BATCH), torch.split(self.y, BATCH), strict=True))


def build(hidden: Sequence[int], method: str, inputs: int = INPUTS) -> tuple[nn.Module, Method]:
    """A network with the paper's settings: SGD, η = 0.05, ℓ1, noise, rewiring in every step."""
    config = TrainConfig(method=method, connectivity=CONNECTIVITY, hidden=list(hidden))
    model = build_model(config, inputs, CLASSES)
    return model, build_method(config, model, build_optimizer(config, model))


def dense_step(hidden: Sequence[int], examples: Examples) -> Callable[[], object]:
    """The loop of every torch tutorial: nothing of ours."""
    model, _ = build(hidden, "dense", examples.x.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = cycle(examples.batches)

    def run() -> None:
        x, y = next(batches)
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(x), y))
        optimizer.step()

    return run


def module_step(hidden: Sequence[int], examples: Examples) -> Callable[[], object]:
    """The same loop on a sparse model, with ``DeepR`` in the place of the optimiser."""
    model, method = build(hidden, "deep-r", examples.x.shape[1])
    batches = cycle(examples.batches)

    def run() -> None:
        x, y = next(batches)
        method.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(x), y))
        method.step()

    return run


def fused_engine(model: nn.Module, method: Method, examples: Examples) -> Engine | str:
    """The fused engine for this model, or why there is none."""
    try:
        fused = importlib.import_module("wirebound.train.fused")
        reason = fused.why_not_fused(model, method)
        if reason:
            return str(reason)
        engine: Engine = fused.FusedEngine(model, method, examples.x, examples.y)
    except (ImportError, AttributeError) as error:
        return str(error)
    return engine


def fused_epoch(hidden: Sequence[int], examples: Examples) -> Callable[[], object] | str:
    """One epoch of fused steps in a call, or why there is none."""
    engine = fused_engine(*build(hidden, "deep-r", examples.x.shape[1]), examples)
    if isinstance(engine, str):
        return engine
    order = torch.randperm(examples.y.numel(), generator=torch.Generator().manual_seed(0))
    steps = examples.y.numel() // BATCH
    rates = [0.05] * steps
    return lambda: list(engine.epoch(order, rates, BATCH, steps))


def check_gradients(hidden: Sequence[int], examples: Examples) -> None:
    """The sparse model computes the loss and the gradients of its dense twin."""
    model, _ = build(hidden, "deep-r", examples.x.shape[1])
    twin = to_dense(model)
    x, y = examples.batches[0]
    losses = []
    for network in (model, twin):
        losses.append(F.cross_entropy(network(x), y))
        torch.autograd.backward(losses[-1])
    (wiring,) = wirings(model)
    assert wiring.theta.grad is not None
    for name, layer in sparse_layers(model):
        index = wiring.layer_index(layer.part)
        code, colptr = index.layer_code(), index.layer_colptr()
        columns = torch.repeat_interleave(torch.arange(colptr.numel() - 1), colptr[1:] - colptr[:-1])
        dense = twin.get_parameter(f"{name}.weight").grad
        assert dense is not None
        expected = dense[rows_of(code), columns] * signs_of(code, dense.dtype)
        if not torch.allclose(wiring.theta.grad[index.start : index.end], expected, rtol=1e-3, atol=1e-6):
            raise WrongAnswerError(f"step: gradients of layer {name} differ from the dense twin's")
    if not torch.allclose(losses[0], losses[1], rtol=1e-5, atol=1e-6):
        raise WrongAnswerError("step: the loss differs from the dense twin's")


def check_fused(hidden: Sequence[int], examples: Examples, steps: int = 16) -> None:
    """Fused steps lead where module steps lead: the same wiring, the same weights."""
    found = []
    order = torch.arange(steps * BATCH)
    for fused in (False, True):
        model, method = build(hidden, "deep-r", examples.x.shape[1])
        modules = ModuleEngine(model, method, examples.x, examples.y)
        engine = fused_engine(model, method, examples) if fused else modules
        if isinstance(engine, str):
            return
        list(engine.epoch(order, [0.05] * steps, BATCH, steps))
        (wiring,) = wirings(model)
        wiring.check()
        found.append((wiring.code, wiring.theta.detach()))
    (code, theta), (code_fused, theta_fused) = found
    if not torch.equal(code, code_fused) or not torch.allclose(theta, theta_fused, rtol=1e-3, atol=1e-5):
        raise WrongAnswerError("step: the fused path differs from the module path")


def measure_step(hidden: Sequence[int], settings: Settings) -> tuple[Measurement, str]:
    """One network; and why the fused path was left out, if it was."""
    label = "-".join(map(str, (INPUTS, *hidden, CLASSES)))
    settings.say(f"step {label}")
    examples = Examples.make()
    check_gradients(hidden, examples)
    check_fused(hidden, examples)
    contenders = {
        "dense, plain SGD": dense_step(hidden, examples),
        "ours, modules, DEEP R": module_step(hidden, examples),
    }
    fused = fused_epoch(hidden, examples)
    if not isinstance(fused, str):
        contenders["ours, fused, DEEP R"] = fused
    times = race(contenders, settings.seconds, settings.rounds)
    if "ours, fused, DEEP R" in times:
        epoch = times["ours, fused, DEEP R"]
        times["ours, fused, DEEP R"] = Timing(epoch.best / _STEPS, epoch.median / _STEPS, epoch.samples)
    dense = times["dense, plain SGD"].best
    numbers = {"dense ÷ modules": dense / times["ours, modules, DEEP R"].best}
    if "ours, fused, DEEP R" in times:
        numbers["dense ÷ fused"] = dense / times["ours, fused, DEEP R"].best
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
    goals = [
        Goal(
            f"training step {first.workload}: dense ÷ ours, modules",
            GOAL_MODULE,
            first.numbers["dense ÷ modules"],
            prototype=PROTOTYPE_MODULE,
        )
    ]
    if "dense ÷ fused" in first.numbers:
        reached = first.numbers["dense ÷ fused"]
        subject = f"training step {first.workload}: dense ÷ ours, fused"
        goals.append(Goal(subject, GOAL_FUSED, reached, prototype=PROTOTYPE_FUSED))
    notes = [
        "Dense takes plain SGD steps; ours all of DEEP R (SGD, ℓ1, noise, death, rebirth) with the paper's "
        "settings, no biases. Batches are cut before the clock starts, except for the fused path, which "
        "gathers its own within it."
    ]
    if missing:
        notes.append(f"The fused path was left out: {missing}.")
    return Section("step", "Whole training step", [Table("Training step", found)], goals, notes)
