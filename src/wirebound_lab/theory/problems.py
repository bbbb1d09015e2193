"""Energies E(θ) = −log p(θ | X, Y) of a few connections with their gradients, and constraint vectors c with K ones.

The network sees w_k = s_k max(θ_k, 0) alone; the prior may also say something about negative θ. Without such a prior
negative θ wander freely, and ``theta_min`` (the paper's θ_min) keeps them in a box.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Problem(Protocol):
    """What chains and laws need to know. θ is [..., connections]."""

    connections: int  # M, the number of potential connections
    theta_min: float  # the lower end of θ; −inf if the prior itself keeps θ from wandering off

    def energy(self, theta: Floats) -> Floats:
        """E, [...]."""

    def gradient(self, theta: Floats) -> Floats:
        """∂E/∂θ, [..., connections]; at θ = 0 that of an active connection."""


class _Prior:
    """The settings of α w for θ >= 0 and ½ ρ θ² for θ < 0, in a box."""

    def __init__(self, connections: int, l1: float, pull: float, theta_min: float) -> None:
        if not theta_min < 0:
            raise ValueError(f"theta_min (={theta_min}) must be < 0")
        if theta_min == -math.inf and not pull > 0:
            raise ValueError(f"without theta_min, pull (={pull}) must be > 0: negative θ would wander off")
        self.connections, self.l1, self.pull, self.theta_min = connections, l1, pull, theta_min


class Quadratic(_Prior):
    """E_k = ½ a_k (w_k − b_k)² + α w_k for θ_k >= 0, its value at 0 plus ½ ρ θ_k² for θ_k < 0, up to a constant.

    Args:
        curvature: a_k, how sure the data is about connection k.
        best: b_k, the weight that the data would like best; a negative one makes the connection useless.
        l1, pull, theta_min: α, ρ (a Gaussian prior on the negative side; 0 for none) and the box.
    """

    def __init__(
        self, curvature: Sequence[float], best: Sequence[float], *, l1: float = 0.0, pull: float = 0.0,
        theta_min: float = -math.inf,
    ) -> None:  # fmt: skip
        self.curvature, self.best = np.asarray(curvature, dtype=float), np.asarray(best, dtype=float)
        if self.curvature.shape != self.best.shape or self.curvature.ndim != 1:
            raise ValueError(f"curvature ({self.curvature.shape}) and best ({self.best.shape}) must be equally long lists")
        super().__init__(len(self.best), l1, pull, theta_min)

    def energies(self, theta: Floats) -> Floats:
        """The terms of E, which is a sum over connections, [..., connections]."""
        weight = np.maximum(theta, 0)
        data = 0.5 * self.curvature * weight * (weight - 2 * self.best)  # 0 at w = 0 for every connection
        return data + self.l1 * weight + 0.5 * self.pull * np.minimum(theta, 0) ** 2

    def energy(self, theta: Floats) -> Floats:
        return self.energies(theta).sum(-1)

    def gradient(self, theta: Floats) -> Floats:
        return np.where(theta >= 0, self.curvature * (theta - self.best) + self.l1, self.pull * theta)


class Logistic(_Prior):
    """The posterior of a logistic regression on a few examples: E = Σ log(1 + exp(−y x·w)) + α Σ w + ½ ρ Σ min(θ, 0)².

    ``inputs`` are [examples, connections]; ``targets`` (of examples) and ``signs`` (of connections) are +1 or −1.
    """

    def __init__(
        self, inputs: Sequence[Sequence[float]], targets: Sequence[int], signs: Sequence[int], *, l1: float,
        pull: float = 0.0, theta_min: float = -math.inf,
    ) -> None:  # fmt: skip
        if set(targets) - {-1, 1} or set(signs) - {-1, 1}:
            raise ValueError(f"targets (={list(targets)}) and signs (={list(signs)}) must be +1 or -1")
        # y and s only ever come with x.
        self.seen = np.asarray(inputs, dtype=float) * np.asarray(targets)[:, None] * np.asarray(signs)
        super().__init__(int(self.seen.shape[1]), l1, pull, theta_min)

    def energy(self, theta: Floats) -> Floats:
        weight = np.maximum(theta, 0)
        loss = np.logaddexp(0, -(weight @ self.seen.T)).sum(-1)
        return loss + self.l1 * weight.sum(-1) + 0.5 * self.pull * (np.minimum(theta, 0) ** 2).sum(-1)

    def gradient(self, theta: Floats) -> Floats:
        margin = np.maximum(theta, 0) @ self.seen.T
        data = -(1 / (1 + np.exp(margin))) @ self.seen
        return np.where(theta >= 0, data + self.l1, self.pull * theta)


def architectures(connections: int, active: int) -> Bools:
    """All c with K ones, one in each row, in the order of ``itertools.combinations``."""
    if not 1 <= active <= connections:
        raise ValueError(f"active (={active}) must be in [1, {connections}], the number of connections")
    chosen = list(itertools.combinations(range(connections), active))
    rows = np.zeros((len(chosen), connections), dtype=bool)
    np.put_along_axis(rows, np.array(chosen), True, axis=1)
    return rows


def set_number(members: Bools) -> NDArray[np.int64]:
    """A set of connections as one number: bit k says whether connection k is in it. [..., M] → [...]"""
    return members @ (1 << np.arange(members.shape[-1], dtype=np.int64))


def compatible_counts(counts: NDArray[np.int64], rows: Bools) -> NDArray[np.int64]:
    """How often each c (a row) was compatible, C(θ, c) = 1, from counts of the sets of active connections.

    [groups, 2^M] → [groups, rows]. A set of fewer than K is compatible with several c, so rows do not add up to one.
    """
    inside = (np.arange(counts.shape[1])[:, None] & ~set_number(rows)) == 0
    return counts @ inside.astype(np.int64)
