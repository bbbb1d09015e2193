"""The paper's three algorithms on a small problem, for many independent chains at once: θ and c are [chains, M].

    formal_step        Algorithm 3: T_θ moves the θ of c and leaves the others, T_c draws a new compatible c
    deep_r_step        Algorithm 1: a θ below 0 is forgotten, a newborn starts at θ = 0
    lazy_step          Algorithm 1 where inputs are off at times: who is off stands still, newborns come to who is on
    soft_deep_r_step   Algorithm 2: dormant θ walk on, at the box they stop; no c

A step has the signature (problem, θ, c, step size η, temperature T, generator) → (θ, c).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wirebound_lab.theory.law import Grid
from wirebound_lab.theory.problems import Bools, Floats, Problem, set_number

Random: TypeAlias = np.random.Generator
State: TypeAlias = tuple[Floats, Bools]
Step: TypeAlias = Callable[[Problem, Floats, Bools, float, float, Random], State]

FORGOTTEN = -1.0  # DEEP R keeps no θ of a dormant connection; any negative number stands for "w = 0"


def draw_constraint(kept: Bools, active: int, generator: Random) -> Bools:
    """T_c for each chain: a uniform draw among the c with K ones that contain all that is ``kept`` ([chains, M])."""
    if kept.sum(1).max(initial=0) > active:
        raise ValueError(f"more than K (={active}) connections are active")
    # Each gets a random key; what is kept comes first. The K first are a uniform choice of what remains.
    keys = generator.random(kept.shape) - kept
    last = np.partition(keys, active - 1, axis=1)[:, active - 1 : active]
    return keys <= last


def langevin(problem: Problem, theta: Floats, eta: float, temperature: float, generator: Random) -> Floats:
    """θ − η ∂E/∂θ + √(2ηT) ν for all connections: one Euler–Maruyama step of the SDE over η = β Δt."""
    if not (eta > 0 and math.isfinite(eta)):
        raise ValueError(f"eta (={eta}) must be a finite number > 0")
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature (={temperature}) must be a finite number >= 0")
    moved = theta - eta * problem.gradient(theta)
    if temperature > 0:
        moved += math.sqrt(2 * eta * temperature) * generator.standard_normal(theta.shape)
    return moved


def formal_step(problem: Problem, theta: Floats, c: Bools, eta: float, temperature: float, generator: Random) -> State:
    """One iteration of Algorithm 3. At the box θ is reflected, as the SDE would be."""
    moved = langevin(problem, theta, eta, temperature, generator)
    if problem.theta_min > -math.inf:
        moved = np.where(moved < problem.theta_min, 2 * problem.theta_min - moved, moved)
    theta = np.where(c, moved, theta)
    return theta, draw_constraint(theta >= 0, int(c[0].sum()), generator)


def deep_r_step(problem: Problem, theta: Floats, c: Bools, eta: float, temperature: float, generator: Random) -> State:
    """One iteration of Algorithm 1. What died in this step is dormant and may be drawn again."""
    active = int(c[0].sum())
    moved = langevin(problem, theta, eta, temperature, generator)
    alive = c & (moved >= 0)
    short = (alive != c).any(1)  # where nobody died, nobody is born
    c = alive.copy()
    c[short] = draw_constraint(alive[short], active, generator)
    return np.where(alive, moved, np.where(c, 0.0, FORGOTTEN)), c


def lazy_step(on: Sequence[float], births: str = "present") -> Step:
    """Algorithm 1 with ``lazy="on"``, for inputs each of which is there in a share of the steps, ``on``, at random.

    Who is off is left alone, and newborns are drawn among the dormant that are on. ``births="anywhere"`` draws them among all
    that are dormant, which is another law.
    """
    share = np.asarray(on, dtype=float)

    def step(problem: Problem, theta: Floats, c: Bools, eta: float, temperature: float, generator: Random) -> State:
        here, active = generator.random(c.shape) < share, int(c[0].sum())
        moved = np.where(here, langevin(problem, theta, eta, temperature, generator), theta)
        alive = c & (moved >= 0)
        short = (alive != c).any(1)
        c = alive.copy()
        # Who dies is on, so as many that are on are dormant: those that are off are never among the K first.
        kept, away = alive[short], ~here[short] & ~alive[short] if births == "present" else False
        keys = generator.random(kept.shape) - kept + away
        c[short] = keys <= np.partition(keys, active - 1, axis=1)[:, active - 1 : active]
        return np.where(alive, moved, np.where(c, 0.0, FORGOTTEN)), c

    return step


def soft_deep_r_step(
    problem: Problem, theta: Floats, c: Bools, eta: float, temperature: float, generator: Random
) -> State:
    """One iteration of Algorithm 2, with the paper's clipping at θ_min. c becomes the set of active connections."""
    theta = np.maximum(langevin(problem, theta, eta, temperature, generator), problem.theta_min)
    return theta, theta >= 0


@dataclass(frozen=True)
class Record:
    """What was seen, counted apart for groups of chains: groups are independent, and so tell the sampling error."""

    constraints: NDArray[np.int64]  # [groups, 2^M], how often each c was seen, by ``set_number``
    active: NDArray[np.int64]  # [groups, 2^M], how often each set was {k : θ_k >= 0}
    theta: NDArray[np.int64]  # [groups, M, bins]
    samples: int  # seen in all: chains × times


def run(
    step: Step, problem: Problem, active: int, grid: Grid, *, eta: float, temperature: float, chains: int, steps: int,
    burn_in: int, every: int, seed: int, groups: int = 64,
) -> Record:  # fmt: skip
    """Run ``chains`` chains and count what they are at every ``every``-th step after ``burn_in``.

    They start with a random c, θ = 0.5 on it and θ uniform in the box elsewhere (in [−1, 0] without one).
    """
    if chains % groups:
        raise ValueError(f"chains (={chains}) must be a multiple of groups (={groups})")
    m = problem.connections
    if not 1 <= m <= 16:
        raise ValueError(f"connections (={m}) must be in [1, 16]: all sets of them are counted")
    generator = np.random.default_rng(seed)
    c = draw_constraint(np.zeros((chains, m), dtype=bool), active, generator)
    theta = np.where(c, 0.5, max(problem.theta_min, -1.0) * (1 - generator.random((chains, m))))
    group = np.arange(chains) // (chains // groups)
    bins, sets = grid.bins, 1 << m
    constraints, present, seen = (np.zeros(groups * n, dtype=np.int64) for n in (sets, sets, m * bins))
    cell = (group[:, None] * m + np.arange(m)) * bins
    times = range(burn_in, burn_in + steps, every)
    for number in range(burn_in + steps):
        theta, c = step(problem, theta, c, eta, temperature, generator)
        if number in times:
            constraints += np.bincount(group * sets + set_number(c), minlength=groups * sets)
            present += np.bincount(group * sets + set_number(theta >= 0), minlength=groups * sets)
            seen += np.bincount((cell + grid.bin_of(theta)).ravel(), minlength=seen.size)
    by_set = (constraints.reshape(groups, sets), present.reshape(groups, sets))
    return Record(*by_set, seen.reshape(groups, m, bins), chains * len(times))
