"""Class-shuffled training (figure 4): the labels are permuted again for every epoch, and the network is compared with itself.

``metrics.jsonl`` also has "recovery" lines (accuracy within an epoch, the first right after the shuffle) and "transfer"
lines (for each layer, correlation of weights and of activities with those one epoch before).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wirebound.checkpoint import CheckpointError
from wirebound.engine.modules import Engine
from wirebound.nn.sparse_layer import sparse_layers
from wirebound_lab.run.config import ConfigError, RunConfig
from wirebound_lab.tasks.perceptron import Perceptron
from wirebound_lab.tasks.task import SEED, Figures, Record

PARTS = 8  # of an epoch, with a look at the accuracy after each
_PROBE = 1000  # test inputs whose activities are compared


def permutation(classes: int, seed: int, epoch: int) -> Tensor:
    """The class that stands for each class in an epoch; the first has the labels as they are."""
    if epoch == 1:
        return torch.arange(classes)
    # RandomState's stream is frozen for good: the same labels with every version.
    return torch.from_numpy(np.random.RandomState([seed, epoch]).permutation(classes)).to(torch.int64)


class Connections(NamedTuple):
    """The active connections of a layer: places (sorted, in the whole matrix) and weights."""

    places: NDArray[np.int64]
    weights: NDArray[np.float64]
    possible: int

    def squares(self) -> float:
        """Σ (w − mean)² over all entries of the matrix."""
        return float(self.weights @ self.weights - self.weights.sum() ** 2 / self.possible)


class Snapshot(NamedTuple):
    """A network between two epochs: weights of each layer, and what its neurons answer to some inputs."""

    weights: list[Connections]
    activities: list[Tensor]  # [inputs, neurons]

    @classmethod
    @torch.no_grad()
    def of(cls, model: nn.Module, inputs: Tensor) -> Snapshot:
        """Of a plain stack; the last layer's activities are its softmax, those of the others after the activation."""
        weights = []
        for _, layer in sparse_layers(model):
            flat = layer.wiring.layer_dense(layer.layer_id).detach().flatten().numpy()
            places = np.flatnonzero(flat)
            weights.append(Connections(places, flat[places].astype(np.float64), flat.size))
        activities, now, modules = [], inputs, list(model.children())
        for number, module in enumerate(modules):
            now = module(now)
            if not isinstance(module, nn.Linear) and not hasattr(module, "wiring"):
                activities.append(now)
            elif number == len(modules) - 1:
                activities.append(torch.softmax(now, 1))
        return cls(weights, activities)


def weight_correlation(a: Connections, b: Connections) -> float:
    """Pearson's correlation of two matrices over all their entries, from the active ones alone."""
    _, mine, theirs = np.intersect1d(a.places, b.places, assume_unique=True, return_indices=True)
    product = float(a.weights[mine] @ b.weights[theirs]) - a.weights.sum() * b.weights.sum() / a.possible
    return _correlation(product, a.squares(), b.squares())


def activity_correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's correlation of two sets of answers, over all inputs and neurons."""
    x, y = a.flatten().double(), b.flatten().double()
    x, y = x - x.mean(), y - y.mean()
    return _correlation(float(x @ y), float(x @ x), float(y @ y))


def _correlation(product: float, first: float, second: float) -> float:
    """0 where one of them is constant: it says nothing about the other."""
    return product / math.sqrt(first * second) if first > 0 and second > 0 else 0.0


class Shuffled(Perceptron):
    """A perceptron whose labels change with every epoch."""

    name = "shuffled"
    title = "a perceptron whose labels are permuted again for every epoch (figure 4)"
    settings = (*Perceptron.settings, SEED)

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.before: Snapshot | None = None  # the network at the beginning of the epoch

    @classmethod
    def check(cls, config: RunConfig) -> None:
        super().check(config)
        for name in ("label_smoothing", "teachers"):
            if value := getattr(config, name):
                raise ConfigError(f"{name} (={value}) must not be given for task shuffled, whose labels are permuted: they are classes")

    @property
    def window(self) -> int:
        return -(-self.per_epoch // PARTS)

    def labels(self, y: Tensor, epoch: int) -> Tensor:
        return permutation(self.data.classes, self.config.seed, epoch)[y]

    def begin_epoch(self, epoch: int, engine: Engine) -> None:
        engine.y = self.labels(self.data.train_y, epoch)  # type: ignore[attr-defined]

    def look(self, epoch: int, taken: int, figures: Figures, record: Record) -> None:
        if taken == 0:
            self.before = self._snapshot()
        self.evaluate(self.labels(self.data.test_y, epoch), figures)
        record("recovery", epoch=epoch, step=(epoch - 1) * self.per_epoch + taken, test_accuracy=figures["test_accuracy"])

    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        before, after = self.before, self._snapshot()
        assert before is not None
        weights = list(map(weight_correlation, before.weights, after.weights))
        activities = list(map(activity_correlation, before.activities, after.activities))
        record("transfer", epoch=epoch, weights=weights, activities=activities)
        return {name: figures[name] for name in ("test_loss", "test_accuracy")}

    def state(self) -> dict[str, Any]:
        if self.before is None:
            return {}
        pairs = [[torch.from_numpy(found.places), torch.from_numpy(found.weights)] for found in self.before.weights]
        return {"before": {"weights": pairs, "activities": self.before.activities}}

    def load_state(self, stored: dict[str, Any]) -> None:
        like = self._snapshot()
        try:
            pairs, activities = stored["before"]["weights"], list(stored["before"]["activities"])
            if [a.shape for a in activities] != [a.shape for a in like.activities]:
                raise ValueError("its activities must be those of this network")
            layers = zip(pairs, like.weights, strict=True)
            weights = [Connections(places.numpy(), values.numpy(), mine.possible) for (places, values), mine in layers]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"what was kept of the network before the epoch cannot be read: {error}") from error
        self.before = Snapshot(weights, activities)

    def _snapshot(self) -> Snapshot:
        return Snapshot.of(self.method.model, self.test_x[:_PROBE])
