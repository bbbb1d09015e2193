"""How much of a network is the same one epoch later: correlation of weights and of activities, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wirebound.nn.sparse_layer import sparse_layers


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
        weights = [_matrix(layer.wiring.layer_dense(layer.part)) for _, layer in sparse_layers(model)]
        activities, now = [], inputs
        modules = list(model.children())
        for number, module in enumerate(modules):
            now = module(now)
            if not isinstance(module, nn.Linear) and not hasattr(module, "wiring"):
                activities.append(now)
            elif number == len(modules) - 1:
                activities.append(torch.softmax(now, 1))
        return cls(weights, activities)


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
