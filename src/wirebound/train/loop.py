"""A training run from settings to run folder: one loop for all methods and engines."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound import data as datasets
from wirebound.data import Dataset
from wirebound.ledger import ledger
from wirebound.methods import Method
from wirebound.nn.part import SparseLayer, sparse_layers, wirings
from wirebound.ops import library
from wirebound.train.config import ConfigError, TrainConfig
from wirebound.train.engine import Engine, ModuleEngine, Window, data_order
from wirebound.train.fused import FusedEngine, why_not_fused
from wirebound.train.models import build_method, build_model, build_optimizer
from wirebound.train.paper import find_claim
from wirebound.train.record import RunFolder
from wirebound.version import __version__

WINDOWS = 400  # points of the loss curve of a run
_EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class RunResult:
    """A finished run: its summary, its trained model, and where it was written, if it was."""

    summary: dict[str, Any]
    model: nn.Module
    folder: Path | None


@dataclass(frozen=True)
class Progress:
    """What a progress display is told after each window and each epoch."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float | None
    active: int


Listener = Callable[[Progress], None]


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """(accuracy, mean cross-entropy) of the model on these examples."""
    model.eval()
    right, loss = 0, 0.0
    for part, labels in zip(x.split(_EVALUATION_BATCH), y.split(_EVALUATION_BATCH), strict=True):
        logits = model(part)
        right += int((logits.argmax(1) == labels).sum())
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
    return right / len(y), loss / len(y)


def choose_engine(config: TrainConfig, model: nn.Module, method: Method, data: Dataset) -> Engine:
    """Fused native steps where model, loss and method allow them, ordinary modules elsewhere."""
    reason = why_not_fused(model, method)
    if config.engine == "fused" and reason:
        raise ConfigError(f"engine (='fused') cannot run this: {reason}")
    if config.engine == "module" or reason:
        return ModuleEngine(model, method, data.inputs("train", flatten=True), data.train_y)
    # The kernels read the bytes as they are stored: a quarter of the memory traffic.
    return FusedEngine(model, method, data.train_x.flatten(1), data.train_y, scale=1 / data.maximum)


def train(
    config: TrainConfig,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> RunResult:
    """Train as the settings say. With ``out``, leave a run folder there.

    Everything that can be wrong with the settings, the data or the folder is found before the first step.
    """
    config.check()
    folder = None if out is None else RunFolder(out, overwrite=overwrite)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    data = datasets.load(config.data, path=config.data_path)
    if config.validation:
        data = datasets.split_validation(data, config.validation, seed=0)
    test_x, examples = data.inputs("test", flatten=True), len(data.train_y)
    model = build_model(config, test_x.shape[1], data.classes)
    method = build_method(config, model, build_optimizer(config, model))
    run = _Run(config, model, method, choose_engine(config, model, method, data), listener)
    if folder is None:
        summary = run.go(examples, test_x, data.test_y, data.shape, None)
        return RunResult(summary, model, None)
    with folder:
        folder.write_json("config.json", config.as_dict())
        summary = run.go(examples, test_x, data.test_y, data.shape, folder)
        folder.finish(summary, model)
    return RunResult(summary, model, folder.path)


@dataclass
class _Run:
    """The loop and what it remembers for the summary."""

    config: TrainConfig
    model: nn.Module
    method: Method
    engine: Engine
    listener: Listener | None

    def go(
        self, examples: int, test_x: Tensor, test_y: Tensor, shape: tuple[int, ...], folder: RunFolder | None
    ) -> dict[str, Any]:
        config = self.config
        per_epoch = -(-examples // config.batch_size)
        steps = per_epoch * config.epochs
        window = max(1, steps // WINDOWS)
        initial = self._layer_active()
        active_min, active_max = sum(initial), sum(initial)
        accuracy = test_loss = 0.0
        started = time.perf_counter()
        training = 0.0
        self._record_wiring(folder, 0, 0, shape)
        for epoch in range(1, config.epochs + 1):
            epoch_started = time.perf_counter()
            first = (epoch - 1) * per_epoch
            lrs = [config.lr * config.lr_factor((first + i) / max(1, steps - 1)) for i in range(per_epoch)]
            order = data_order(examples, config.seed, epoch)
            losses, rewired = [], 0
            for part in self.engine.epoch(order, lrs, config.batch_size, window):
                losses.append((part.loss, part.step_to - part.step_from + 1))
                rewired += sum(part.newborns)
                active_min, active_max = min(active_min, part.active_min), max(active_max, part.active_max)
                self._record_window(folder, part)
                self._tell(part.step_to, steps, epoch, part.loss, None)
            training += time.perf_counter() - epoch_started
            for wiring in wirings(self.model):
                wiring.check()
            accuracy, test_loss = evaluate(self.model, test_x, test_y)
            train_loss = sum(loss * n for loss, n in losses) / per_epoch
            if folder is not None:
                folder.metric(
                    "epoch",
                    epoch=epoch,
                    step=epoch * per_epoch,
                    train_loss=train_loss,
                    test_loss=test_loss,
                    test_accuracy=accuracy,
                    lr=lrs[-1],
                    active=sum(self._layer_active()),
                    rewired=rewired,
                    layer_active=self._layer_active(),
                    seconds=time.perf_counter() - started,
                )
            self._record_wiring(folder, epoch, epoch * per_epoch, shape)
            self._tell(epoch * per_epoch, steps, epoch, train_loss, accuracy)
        return self._summary(
            steps, initial, active_min, active_max, accuracy, test_loss, time.perf_counter() - started, training
        )

    def _layer_active(self) -> list[int]:
        found = wirings(self.model)
        if found:
            return [n for wiring in found for n in wiring.layer_active]
        return [shape.possible for shape in self.method.shapes]

    def _record_window(self, folder: RunFolder | None, part: Window) -> None:
        if folder is not None:
            folder.metric("window", **part.__dict__)

    def _record_wiring(self, folder: RunFolder | None, epoch: int, step: int, shape: tuple[int, ...]) -> None:
        """How many connections leave each input: the picture of where the network looks."""
        first: tuple[str, SparseLayer] | None = next(sparse_layers(self.model), None)
        if folder is None or first is None:
            return
        colptr = first[1].wiring.layer_index(first[1].part).layer_colptr()
        folder.metric("wiring", epoch=epoch, step=step, inputs=colptr.diff().tolist(), shape=list(shape))

    def _tell(self, step: int, steps: int, epoch: int, loss: float, accuracy: float | None) -> None:
        if self.listener is not None:
            active = sum(self._layer_active())
            self.listener(Progress(step, steps, epoch, self.config.epochs, loss, accuracy, active))

    def _summary(
        self,
        steps: int,
        initial: list[int],
        active_min: int,
        active_max: int,
        accuracy: float,
        test_loss: float,
        seconds: float,
        training: float,
    ) -> dict[str, Any]:
        config, shapes = self.config, self.method.shapes
        possible = sum(shape.possible for shape in shapes)
        budget = None if config.method == "dense" else sum(w.budget for w in wirings(self.model))
        connectivity = (possible if budget is None else budget) / possible
        layers = [
            {"name": s.name, "shape": [s.n_out, s.n_in], "possible": s.possible, "initial": a, "final": b}
            for s, a, b in zip(shapes, initial, self._layer_active(), strict=True)
        ]
        summary = {
            "method": config.method,
            "data": config.data,
            "evaluated_on": "validation" if config.validation else "test",
            "seed": config.seed,
            "budget": budget,
            "possible": possible,
            "connectivity": connectivity,
            "max_active": active_max,
            "min_active": active_min,
            "steps": steps,
            "epochs": config.epochs,
            "seconds": round(seconds, 3),
            "training_seconds": round(training, 3),
            "test_accuracy": accuracy,
            "test_loss": test_loss,
            "path": self.engine.name,
            "layers": layers,
            "ledger": [entry.__dict__ for entry in ledger(self.model, self.method).entries],
            "versions": {
                "wirebound": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "kernels": library.isa() or f"none ({library.reason()})",
            },
        }
        claim = find_claim(config, connectivity)
        if claim is not None:
            summary["paper"] = claim
        return summary
