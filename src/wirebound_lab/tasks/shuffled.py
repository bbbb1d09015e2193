"""Class-shuffled training (figure 4): the labels are permuted again for every epoch, and the network is compared with itself.

Beside the usual records, ``metrics.jsonl`` has "recovery" lines (accuracy within an epoch, the first right after the
shuffle) and "transfer" lines (for each layer, correlation of weights and of activities with those one epoch before).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wirebound.checkpoint import CheckpointError
from wirebound.engine.modules import Engine
from wirebound.nn.sparse_layer import sparse_layers
from wirebound_lab.run.config import RunConfig
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


@dataclass(frozen=True)
class SparseMatrix:
    """The active connections of a layer: places (sorted, in the whole matrix) and weights."""

    places: NDArray[np.int64]
    weights: NDArray[np.float64]
    possible: int


@dataclass(frozen=True)
class Snapshot:
    """A network between two epochs: weights of each layer, and what its neurons answer to some inputs."""

    weights: list[SparseMatrix]
    activities: list[Tensor]  # [inputs, neurons]

    @classmethod
    @torch.no_grad()
    def of(cls, model: nn.Module, inputs: Tensor) -> Snapshot:
        """Of a plain stack; the last layer's activities are its softmax, those of the others after the activation."""
        weights = [_matrix(layer.wiring.layer_dense(layer.layer_id)) for _, layer in sparse_layers(model)]
        activities, now = [], inputs
        modules = list(model.children())
        for number, module in enumerate(modules):
            now = module(now)
            if not isinstance(module, nn.Linear) and not hasattr(module, "wiring"):
                activities.append(now)
            elif number == len(modules) - 1:
                activities.append(torch.softmax(now, 1))
        return cls(weights, activities)


    def as_state(self) -> dict[str, Any]:
        """For a checkpoint."""
        pairs = [[torch.from_numpy(matrix.places), torch.from_numpy(matrix.weights)] for matrix in self.weights]
        return {"weights": pairs, "activities": self.activities}

    @classmethod
    def from_state(cls, stored: Any, like: Snapshot) -> Snapshot:
        """What ``as_state`` made of a network of the same shapes as ``like``."""
        weights = [
            SparseMatrix(places.numpy(), values.numpy(), matrix.possible)
            for (places, values), matrix in zip(stored["weights"], like.weights, strict=True)
        ]
        if [a.shape for a in stored["activities"]] != [a.shape for a in like.activities]:
            raise ValueError("its activities must be those of this network")
        return cls(weights, list(stored["activities"]))


def _matrix(dense: Tensor) -> SparseMatrix:
    flat = dense.detach().flatten().numpy()
    places = np.flatnonzero(flat)
    return SparseMatrix(places, flat[places].astype(np.float64), flat.size)


def weight_correlation(a: SparseMatrix, b: SparseMatrix) -> float:
    """Pearson's correlation of two matrices over all their entries, from the active ones alone."""
    _, mine, theirs = np.intersect1d(a.places, b.places, assume_unique=True, return_indices=True)
    n = a.possible
    product = float(a.weights[mine] @ b.weights[theirs]) - a.weights.sum() * b.weights.sum() / n
    return _correlation(product, _squares(a), _squares(b))


def _squares(matrix: SparseMatrix) -> float:
    """Σ (w − mean)² over all entries."""
    return float(matrix.weights @ matrix.weights - matrix.weights.sum() ** 2 / matrix.possible)


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

    @property
    def window(self) -> int:
        return -(-self.per_epoch // PARTS)

    def _labels(self, y: Tensor, epoch: int) -> Tensor:
        return permutation(self.data.classes, self.config.seed, epoch)[y]

    def begin_epoch(self, epoch: int, engine: Engine) -> None:
        engine.y = self._labels(self.data.train_y, epoch)  # type: ignore[attr-defined]

    def look(self, epoch: int, taken: int, figures: Figures, record: Record) -> None:
        if taken == 0:
            self.before = Snapshot.of(self.method.model, self.test_x[:_PROBE])
        self.evaluate(self._labels(self.data.test_y, epoch), figures)
        record("recovery", epoch=epoch, step=(epoch - 1) * self.per_epoch + taken, test_accuracy=figures["test_accuracy"])

    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        before, after = self.before, Snapshot.of(self.method.model, self.test_x[:_PROBE])
        assert before is not None
        record(
            "transfer",
            epoch=epoch,
            weights=[weight_correlation(a, b) for a, b in zip(before.weights, after.weights, strict=True)],
            activities=[activity_correlation(a, b) for a, b in zip(before.activities, after.activities, strict=True)],
        )
        return {name: figures[name] for name in ("test_loss", "test_accuracy")}

    def state(self) -> dict[str, Any]:
        return {} if self.before is None else {"before": self.before.as_state()}

    def load_state(self, stored: dict[str, Any]) -> None:
        try:
            self.before = Snapshot.from_state(stored["before"], Snapshot.of(self.method.model, self.test_x[:_PROBE]))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"what was kept of the network before the epoch cannot be read: {error}") from error
