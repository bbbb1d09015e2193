"""Energies E(θ) = −log p(θ | X, Y) of a few connections, with their gradients.

The network sees w_k = s_k max(θ_k, 0) alone; the prior may also say something about negative θ. Without such a prior
negative θ wander freely, and ``theta_min`` (the paper's θ_min) keeps them in a box.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Problem(Protocol):
    """What chains and laws need to know. θ is [..., connections]."""

    @property
    def connections(self) -> int:
        """M, the number of potential connections."""
        ...

    @property
    def theta_min(self) -> float:
        """The lower end of θ; −inf if the prior itself keeps θ from wandering off."""
        ...

    def energy(self, theta: Floats) -> Floats:
        """E, [...]."""
        ...

    def gradient(self, theta: Floats) -> Floats:
        """∂E/∂θ, [..., connections]; at θ = 0 that of an active connection."""
        ...


class Separable(ABC):
    """A problem whose energy is a sum of one term for each connection."""

    @abstractmethod
    def energies(self, theta: Floats) -> Floats:
        """The terms, [..., connections]."""

    def energy(self, theta: Floats) -> Floats:
        return self.energies(theta).sum(-1)


class Quadratic(Separable):
    """E_k = ½ a_k (w_k − b_k)² + α w_k for θ_k >= 0, its value at 0 plus ½ ρ θ_k² for θ_k < 0, up to a constant.

    Args:
        curvature: a_k, how sure the data is about connection k.
        best: b_k, the weight that the data would like best; a negative one makes the connection useless.
        l1: α.
        pull: ρ, a Gaussian prior on the negative side; 0 for none.
        theta_min: the box.
    """

    def __init__(
        self,
        curvature: Sequence[float],
        best: Sequence[float],
        *,
        l1: float = 0.0,
        pull: float = 0.0,
        theta_min: float = -math.inf,
    ) -> None:
        self.curvature, self.best = np.asarray(curvature, dtype=float), np.asarray(best, dtype=float)
        if self.curvature.shape != self.best.shape or self.curvature.ndim != 1:
            raise ValueError(f"curvature ({self.curvature.shape}) and best ({self.best.shape}) must be equally long lists")
        self.l1, self.pull, self.theta_min = l1, pull, _check_box(theta_min, pull)

    @property
    def connections(self) -> int:
        return len(self.best)

    def energies(self, theta: Floats) -> Floats:
        weight = np.maximum(theta, 0)
        data = 0.5 * self.curvature * weight * (weight - 2 * self.best)  # 0 at w = 0 for every connection
        return data + self.l1 * weight + 0.5 * self.pull * np.minimum(theta, 0) ** 2

    def gradient(self, theta: Floats) -> Floats:
        return np.where(theta >= 0, self.curvature * (theta - self.best) + self.l1, self.pull * theta)


class Logistic:
    """The posterior of a logistic regression on a few examples: E = Σ log(1 + exp(−y x·w)) + α Σ w + ½ ρ Σ min(θ, 0)².

    Args:
        inputs: [examples, connections].
        targets: +1 or −1 for each example.
        signs: s_k, +1 or −1 for each connection.
        l1, pull, theta_min: as for ``Quadratic``.
    """

    def __init__(
        self,
        inputs: Sequence[Sequence[float]],
        targets: Sequence[int],
        signs: Sequence[int],
        *,
        l1: float,
        pull: float = 0.0,
        theta_min: float = -math.inf,
    ) -> None:
        if set(targets) - {-1, 1} or set(signs) - {-1, 1}:
            raise ValueError(f"targets (={list(targets)}) and signs (={list(signs)}) must be +1 or -1")
        # y and s only ever come with x.
        self.seen = np.asarray(inputs, dtype=float) * np.asarray(targets)[:, None] * np.asarray(signs)
        self.l1, self.pull, self.theta_min = l1, pull, _check_box(theta_min, pull)

    @property
    def connections(self) -> int:
        return int(self.seen.shape[1])

    def energy(self, theta: Floats) -> Floats:
        weight = np.maximum(theta, 0)
        loss = np.logaddexp(0, -(weight @ self.seen.T)).sum(-1)
        return loss + self.l1 * weight.sum(-1) + 0.5 * self.pull * (np.minimum(theta, 0) ** 2).sum(-1)

    def gradient(self, theta: Floats) -> Floats:
        margin = np.maximum(theta, 0) @ self.seen.T
        data = -(1 / (1 + np.exp(margin))) @ self.seen
        return np.where(theta >= 0, data + self.l1, self.pull * theta)


def _check_box(theta_min: float, pull: float) -> float:
    if not theta_min < 0:
        raise ValueError(f"theta_min (={theta_min}) must be < 0")
    if theta_min == -math.inf and not pull > 0:
        raise ValueError(f"without theta_min, pull (={pull}) must be > 0: negative θ would wander off")
    return theta_min
