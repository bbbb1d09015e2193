"""What an experiment with data and a network of its own is, and ``summary.json`` of a run of it."""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from wirebound.ledger import ledger
from wirebound.methods import Method
from wirebound.nn.sparse_layer import wirings
from wirebound.ops import library
from wirebound.version import __version__
from wirebound_lab.run.observe import Observer
from wirebound_lab.tasks.task_config import TaskConfig


@dataclass
class Progress:
    """Where a run stands after an epoch: what a checkpoint keeps beside model, optimiser and method."""

    initial: list[int]  # connections of each matrix before the first step
    epoch: int = 0  # epochs that are done
    active_min: int = 0
    active_max: int = 0
    seconds: float = 0.0
    metrics: int = 0  # bytes of metrics.jsonl
    figures: dict[str, float] = field(default_factory=dict)  # what the task has measured up to now, by name


class Task(ABC):
    """What an experiment gives to the loop."""

    name: str
    config: TaskConfig
    method: Method
    per_epoch: int  # steps of an epoch
    input_shape: tuple[int, ...]  # of what the first rewired matrix sees

    @property
    def steps(self) -> int:
        return self.per_epoch * self.config.epochs

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch, the first being 1; the same for the same seed and number."""

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """The mean loss of a batch."""

    @abstractmethod
    def measure(self, epoch: int, figures: dict[str, float]) -> dict[str, float | None]:
        """After an epoch: note what the summary will say in ``figures``; returns what the epoch's record says."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What the summary says about the data."""

    def lr_factor(self, progress: float) -> float:
        """η at ``progress`` (0 at the first step, 1 at the last) as a share of the first."""
        return 1.0

    def after_backward(self) -> None:  # noqa: B027 (most tasks do nothing there)
        """Between the gradient and the step."""

    def after_step(self) -> None:  # noqa: B027
        """After each step."""


def summarise(task: Task, progress: Progress, observer: Observer) -> dict[str, Any]:
    """``summary.json``: the end of a run in one object."""
    config, method = task.config, task.method
    shapes, active = method.shapes, method.layer_active()
    possible = sum(shape.possible for shape in shapes)
    budget = sum(w.budget for w in wirings(method.model)) if method.promises_budget else None
    measured = progress.active_max if method.counts == "highest" else sum(active)
    layers = [
        {"name": s.name, "shape": [s.n_out, s.n_in], "possible": s.possible, "initial": a, "final": b}
        for s, a, b in zip(shapes, progress.initial, active, strict=True)
    ]
    return {
        "method": config.method,
        **task.facts(),
        "seed": config.seed,
        "budget": budget,
        "possible": possible,
        "connectivity": (measured if budget is None else budget) / possible,
        "max_active": progress.active_max,
        "min_active": progress.active_min,
        "steps": method.steps,
        "epochs": config.epochs,
        "seconds": round(progress.seconds, 3),
        **progress.figures,
        "layers": layers,
        "ledger": [entry.__dict__ for entry in (*ledger(method.model, method).entries, *observer.entries())],
        "versions": {
            "wirebound": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "kernels": library.isa() or f"none ({library.reason()})",
        },
    }
