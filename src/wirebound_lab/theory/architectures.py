"""Constraint vectors c with exactly K ones, and T_c: the uniform draw among those that θ is compatible with."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]


def architectures(connections: int, active: int) -> Bools:
    """All c with K ones, one in each row, in the order of ``itertools.combinations``."""
    if not 1 <= active <= connections:
        raise ValueError(f"active (={active}) must be in [1, {connections}], the number of connections")
    chosen = list(itertools.combinations(range(connections), active))
    rows = np.zeros((len(chosen), connections), dtype=bool)
    for row, members in zip(rows, chosen, strict=True):
        row[list(members)] = True
    return rows


def set_number(members: Bools) -> NDArray[np.int64]:
    """A set of connections as one number: bit k says whether connection k is in it. [..., M] → [...]"""
    return members @ (1 << np.arange(members.shape[-1], dtype=np.int64))


def draw_constraint(kept: Bools, active: int, generator: np.random.Generator) -> Bools:
    """For each chain, a uniform draw among the c with K ones that contain all that is ``kept`` ([chains, M])."""
    if kept.sum(1).max(initial=0) > active:
        raise ValueError(f"more than K (={active}) connections are active")
    # Each gets a random key; what is kept comes first. The K first are a uniform choice of what remains.
    keys = generator.random(kept.shape) - kept
    last = np.partition(keys, active - 1, axis=1)[:, active - 1 : active]
    return keys <= last


def compatible_counts(counts: NDArray[np.int64], rows: Bools) -> NDArray[np.int64]:
    """How often each c (a row) was compatible, C(θ, c) = 1, from counts of the sets of active connections.

    [groups, 2^M] → [groups, rows]. A set of fewer than K is compatible with several c, so rows do not add up to one.
    """
    numbers = np.arange(counts.shape[1])
    inside = (numbers[:, None] & ~set_number(rows)) == 0
    return counts @ inside.astype(np.int64)
