"""What the algorithms should sample, exactly: by enumeration of architectures and quadrature over θ.

    formal_law   p*(θ, c) ∝ p*(θ) C(θ, c) p_C(c) with p*(θ) ∝ exp(−E(θ)/T); so p*(c) ∝ p*(θ_{∉c} < 0)
    soft_law     p*(θ) itself, and what it says about the set of active connections
    strict_law   p(θ, c) ∝ exp(−E(θ)/T) on θ_{∈c} >= 0 with all else dormant, p(c) ∝ ∫ exp(−E/T) over these θ_{∈c}

``strict_law`` is not in the paper. It is what Algorithm 1 samples as η → 0: a connection that reaches 0 hands over to
a uniformly drawn one that starts at 0, so the K-dimensional pieces θ_{∈c} >= 0 of all c are glued together along their
faces, evenly, and the diffusion on the whole is reversible with respect to exp(−E/T). It is the formal law for a prior
that leaves (almost) no probability on the negative side, and the law of soft-DEEP R at the times at which it has
exactly K active connections, where the prior gives all connections the same probability of being negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirebound_lab.theory.architectures import Bools, architectures, set_number
from wirebound_lab.theory.problems import Floats, Problem, Separable

_WALL = 0.5825971579390106  # −ζ(1/2)/√(2π), the mean overshoot of a Gaussian random walk in units of its step
_MOST_POINTS = 40_000_000


def wall(eta: float, temperature: float) -> float:
    """How much wider the box seems to soft-DEEP R: clipping at θ_min leaves a pile there, of 0.58 √(2ηT) times the
    density beside it. So Algorithm 2 with steps of size η samples the law of a box that is so much wider."""
    return _WALL * math.sqrt(2 * eta * temperature)


class Grid:
    """Bins of θ with Gauss–Legendre nodes in each.

    Args:
        edges: of the bins, rising, one of them 0. What lies outside is counted to the outermost bins, and is left out
            of integrals: the lowest edge is the end of the box, or so far out that nothing is there.
        nodes: nodes in a bin.
    """

    def __init__(self, edges: Sequence[float], nodes: int = 6) -> None:
        self.edges: Floats = np.asarray(edges, dtype=float)
        if not (np.diff(self.edges) > 0).all() or not 0 < np.count_nonzero(self.edges < 0) < len(edges) - 1:
            raise ValueError(f"edges (={list(edges)}) must rise from below 0 to above 0")
        if 0 not in self.edges or nodes < 1:
            raise ValueError(f"edges (={list(edges)}) must include 0, and nodes (={nodes}) be >= 1")
        self.bins, self.below = len(self.edges) - 1, int(np.count_nonzero(self.edges < 0))
        at, weight = np.polynomial.legendre.leggauss(nodes)
        half = np.diff(self.edges)[:, None] / 2
        self.nodes: Floats = (self.edges[:-1, None] + half * (1 + at)).ravel()
        self.weights: Floats = (half * weight).ravel()
        self.negative = self.below * nodes  # nodes with θ < 0; they come first

    def bin_of(self, theta: Floats) -> NDArray[np.int64]:
        return np.clip(np.searchsorted(self.edges, theta, side="right") - 1, 0, self.bins - 1)

    def binned(self, values: Floats) -> Floats:
        """Values at the nodes (with their weights) added up in each bin; [..., nodes] → [..., bins]."""
        return values.reshape(*values.shape[:-1], self.bins, -1).sum(-1)

    def merged(self, binned: NDArray[np.generic]) -> NDArray[np.generic]:
        """All bins below 0 as one: whether a connection is dormant, and its θ if not."""
        below = binned[..., : self.below].sum(-1, keepdims=True)
        return np.concatenate([below, binned[..., self.below :]], axis=-1)


@dataclass(frozen=True)
class Law:
    """Probabilities of sets of connections (rows of ``sets``), and of each θ_k in the bins of a grid."""

    sets: Bools  # [sets, M]
    probability: Floats  # [sets]
    theta: Floats  # [M, bins]

    def by_number(self) -> Floats:
        """Probabilities in the order of ``set_number``, 0 for sets that cannot be."""
        found = np.zeros(1 << self.sets.shape[1])
        found[set_number(self.sets)] = self.probability
        return found


def formal_law(problem: Problem, active: int, temperature: float, grid: Grid) -> Law:
    """The stationary law of Algorithm 3 (Theorem 2 of the paper)."""
    m = problem.connections
    rows = architectures(m, active)
    below, every = slice(0, grid.negative), slice(None)
    return _collect(problem, temperature, grid, rows, [[every if k else below for k in row] for row in rows])


def soft_law(problem: Problem, temperature: float, grid: Grid) -> Law:
    """p*(θ) ∝ exp(−E/T), the stationary law of soft-DEEP R (Theorem 1), over all sets of active connections."""
    m = problem.connections
    rows = ((np.arange(1 << m)[:, None] >> np.arange(m)) & 1).astype(bool)
    below, above = slice(0, grid.negative), slice(grid.negative, None)
    return _collect(problem, temperature, grid, rows, [[above if k else below for k in row] for row in rows])


def _collect(problem: Problem, temperature: float, grid: Grid, rows: Bools, pieces: list[list[slice]]) -> Law:
    """Add up exp(−E/T) over one piece of θ for each row; all pieces together are the law."""
    m, n = problem.connections, len(grid.nodes)
    mass, theta = np.zeros(len(rows)), np.zeros((m, grid.bins))
    if isinstance(problem, Separable):
        each = np.exp(-problem.energies(np.repeat(grid.nodes[:, None], m, 1)) / temperature).T * grid.weights
        for number, piece in enumerate(pieces):
            inside = np.zeros((m, n))
            for k, part in enumerate(piece):
                inside[k, part] = each[k, part]
            mass[number] = inside.sum(1).prod()
            theta += grid.binned(inside) * (mass[number] / inside.sum(1))[:, None]
    else:
        density = _tensor(problem, temperature, [grid.nodes] * m, [grid.weights] * m)
        for number, piece in enumerate(pieces):
            inside = density[tuple(piece)]
            mass[number] = inside.sum()
            for k in range(m):
                line = np.zeros(n)
                line[piece[k]] = inside.sum(tuple(i for i in range(m) if i != k))
                theta[k] += grid.binned(line)
    return Law(rows, mass / mass.sum(), theta / mass.sum())


def strict_law(problem: Problem, active: int, temperature: float, grid: Grid) -> Law:
    """The law of Algorithm 1 in the limit η → 0.

    The probability of a connection to be dormant is put into the last bin below 0: Algorithm 1 keeps no dormant θ.
    """
    m = problem.connections
    rows = architectures(m, active)
    above, dormant = slice(grid.negative, None), np.array([-np.finfo(float).tiny])
    mass, theta = np.zeros(len(rows)), np.zeros((m, grid.bins))
    reference = float(problem.energy(np.zeros(m)))
    for number, row in enumerate(rows):
        axes = [grid.nodes[above] if k else dormant for k in row]
        weights = [grid.weights[above] if k else np.ones(1) for k in row]
        density = _tensor(problem, temperature, axes, weights, reference)
        mass[number] = density.sum()
        for k in np.flatnonzero(row):
            line = density.sum(tuple(i for i in range(m) if i != k))
            theta[k] += grid.binned(np.r_[np.zeros(grid.negative), line])
        theta[~row, grid.below - 1] += mass[number]
    return Law(rows, mass / mass.sum(), theta / mass.sum())


def _tensor(
    problem: Problem,
    temperature: float,
    axes: list[Floats],
    weights: list[Floats],
    reference: float | None = None,
) -> Floats:
    """exp(−(E − reference)/T) times the quadrature weights on a full tensor grid."""
    shape = tuple(len(axis) for axis in axes)
    if math.prod(shape) > _MOST_POINTS:
        raise ValueError(f"a grid of {' x '.join(map(str, shape))} points must have at most {_MOST_POINTS}")
    energy = np.empty(shape)
    rest = np.stack(np.meshgrid(*axes[1:], indexing="ij"), -1)
    for i, first in enumerate(axes[0]):  # a slice at a time: θ itself takes M times the memory of E
        energy[i] = problem.energy(np.concatenate([np.full((*rest.shape[:-1], 1), first), rest], -1))
    energy -= energy.min() if reference is None else reference
    density = np.exp(energy / -temperature)
    for k, weight in enumerate(weights):
        density *= weight.reshape([-1 if i == k else 1 for i in range(len(axes))])
    return density
