"""What the algorithms should sample, by enumeration of architectures and quadrature over θ, and how far off they are.

    formal_law   p*(θ, c) ∝ p*(θ) C(θ, c) p_C(c) with p*(θ) ∝ exp(−E(θ)/T); so p*(c) ∝ p*(θ_{∉c} < 0)
    soft_law     p*(θ) itself, and what it says about the set of active connections
    strict_law   p(θ, c) ∝ exp(−E(θ)/T) on θ_{∈c} >= 0 with all else dormant, p(c) ∝ ∫ exp(−E/T) over these θ_{∈c}

``strict_law`` is not in the paper. It is what Algorithm 1 samples as η → 0 (``docs/theory.md`` derives it).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirebound_lab.theory.problems import Bools, Floats, Problem, architectures, set_number

_WALL = 0.5825971579390106  # −ζ(1/2)/√(2π), the mean overshoot of a Gaussian random walk in units of its step
_MOST_POINTS = 40_000_000
_RESAMPLES, _QUANTILE = 1000, 0.999


def wall(eta: float, temperature: float) -> float:
    """How much wider the box seems to Algorithm 2: clipping at θ_min piles up so much of the density beside it."""
    return _WALL * math.sqrt(2 * eta * temperature)


class Grid:
    """Bins of θ, between rising ``edges`` one of which is 0, with Gauss–Legendre ``nodes`` in each.

    What lies outside is counted to the outermost bins and left out of integrals: the lowest edge is the end of the box,
    or so far out that nothing is there.
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
    return _collect(problem, temperature, grid, architectures(problem.connections, active), slice(None))


def soft_law(problem: Problem, temperature: float, grid: Grid) -> Law:
    """p*(θ) ∝ exp(−E/T), the stationary law of soft-DEEP R (Theorem 1), over all sets of active connections."""
    m = problem.connections
    rows = ((np.arange(1 << m)[:, None] >> np.arange(m)) & 1).astype(bool)
    return _collect(problem, temperature, grid, rows, slice(grid.negative, None))


def _collect(problem: Problem, temperature: float, grid: Grid, rows: Bools, members: slice) -> Law:
    """Add up exp(−E/T) over one piece of θ for each row: ``members`` for the connections in it, θ < 0 for the others."""
    m, n = problem.connections, len(grid.nodes)
    mass, theta = np.zeros(len(rows)), np.zeros((m, grid.bins))
    pieces = [tuple(members if k else slice(0, grid.negative) for k in row) for row in rows]
    energies = getattr(problem, "energies", None)
    if energies is not None:  # E is a sum of one term for each connection
        each = np.exp(-energies(np.repeat(grid.nodes[:, None], m, 1)) / temperature).T * grid.weights
        for number, piece in enumerate(pieces):
            inside = np.zeros((m, n))
            for k, part in enumerate(piece):
                inside[k, part] = each[k, part]
            mass[number] = inside.sum(1).prod()
            theta += grid.binned(inside) * (mass[number] / inside.sum(1))[:, None]
    else:
        density = _tensor(problem, temperature, [grid.nodes] * m, [grid.weights] * m)
        for number, piece in enumerate(pieces):
            inside = density[piece]
            mass[number] = inside.sum()
            for k in range(m):
                line = np.zeros(n)
                line[piece[k]] = _marginal(inside, k)
                theta[k] += grid.binned(line)
    return Law(rows, mass / mass.sum(), theta / mass.sum())


def strict_law(problem: Problem, active: int, temperature: float, grid: Grid) -> Law:
    """The law of Algorithm 1 in the limit η → 0; it keeps no dormant θ, so these are in the last bin below 0."""
    m = problem.connections
    rows = architectures(m, active)
    above = grid.nodes[grid.negative :], grid.weights[grid.negative :]
    dormant = np.array([-np.finfo(float).tiny]), np.ones(1)
    mass, theta = np.zeros(len(rows)), np.zeros((m, grid.bins))
    reference = float(problem.energy(np.zeros(m)))
    for number, row in enumerate(rows):
        axes, weights = zip(*(above if k else dormant for k in row), strict=True)
        density = _tensor(problem, temperature, axes, weights, reference)
        mass[number] = density.sum()
        for k in np.flatnonzero(row).tolist():
            theta[k] += grid.binned(np.r_[np.zeros(grid.negative), _marginal(density, k)])
        theta[~row, grid.below - 1] += mass[number]
    return Law(rows, mass / mass.sum(), theta / mass.sum())


def _marginal(density: Floats, k: int) -> Floats:
    return density.sum(tuple(i for i in range(density.ndim) if i != k))


def _tensor(
    problem: Problem, temperature: float, axes: Sequence[Floats], weights: Sequence[Floats], reference: float | None = None
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


def total_variation(p: Floats, q: Floats) -> float:
    """½ Σ |p − q|."""
    return float(0.5 * np.abs(p - q).sum())


@dataclass(frozen=True)
class Distance:
    """Total variation between frequencies and a law, beside what the right law would show."""

    value: float
    expected: float  # of the right law, by resampling independent groups of chains: the sampling error
    limit: float  # what the right law exceeds once in a thousand times

    @property
    def agrees(self) -> bool:
        return self.value <= self.limit

    def as_dict(self) -> dict[str, float]:
        return {"tv": self.value, "sampling_error": self.expected, "limit": self.limit}


def distance(counts: NDArray[np.generic], law: Floats, seed: int = 0) -> Distance:
    """Counts of independent groups, [groups, cells], against probabilities [cells]."""
    numbers: Floats = np.asarray(counts, dtype=float)
    seen = numbers.sum(0)
    if not seen.sum() > 0:
        raise ValueError("nothing was counted")
    frequency = seen / seen.sum()
    groups = len(numbers)
    share = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), size=_RESAMPLES)
    again = share @ numbers
    again /= again.sum(1, keepdims=True)
    spread = 0.5 * np.abs(again - frequency).sum(1)
    return Distance(total_variation(frequency, law), float(spread.mean()), float(np.quantile(spread, _QUANTILE)))
