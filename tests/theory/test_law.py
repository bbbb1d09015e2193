"""The exact laws against closed forms, against each other, and against brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from wirebound_lab.theory import (
    Grid,
    Logistic,
    Quadratic,
    architectures,
    compatible_counts,
    formal_law,
    set_number,
    soft_law,
    strict_law,
)

GRID = Grid([-1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6, 9], nodes=8)
ASYMMETRIC = Quadratic([1.0, 2.0, 0.5], [2.0, 0.5, -1.0], l1=0.3, theta_min=-1.0)


class Hidden:
    """The same problem without saying that it is separable: the laws then go by the tensor grid."""

    def __init__(self, problem):
        self.connections, self.theta_min = problem.connections, problem.theta_min
        self.energy, self.gradient = problem.energy, problem.gradient


@pytest.mark.parametrize(("active", "temperature"), [(1, 1.0), (2, 0.5)])
def test_product_rule_and_tensor_grid_agree(active, temperature):
    for law in (lambda p: formal_law(p, active, temperature, GRID), lambda p: soft_law(p, temperature, GRID)):
        one, other = law(ASYMMETRIC), law(Hidden(ASYMMETRIC))
        np.testing.assert_allclose(one.probability, other.probability, rtol=1e-10)
        np.testing.assert_allclose(one.theta, other.theta, rtol=1e-10)


def _masses(problem, temperature, k):
    """∫ exp(−E_k/T) above and below 0, by scipy."""

    def density(x):
        return math.exp(-problem.energies(np.full(problem.connections, x))[k] / temperature)

    return integrate.quad(density, 0, 20)[0], integrate.quad(density, problem.theta_min, 0)[0]


def test_the_marginal_over_architectures_is_the_probability_of_the_others_to_be_negative():
    """p*(c) ∝ p*(θ_{∉c} < 0), by independent means."""
    above, below = zip(*(_masses(ASYMMETRIC, 0.7, k) for k in range(3)), strict=True)
    wanted = np.array([
        math.prod(above[k] + below[k] if k in c else below[k] for k in range(3))
        for c in itertools.combinations(range(3), 2)
    ])
    law = formal_law(ASYMMETRIC, 2, 0.7, GRID)
    np.testing.assert_allclose(law.probability, wanted / wanted.sum(), rtol=1e-5)
    strict = np.array([math.prod(above[k] for k in c) for c in itertools.combinations(range(3), 2)])
    np.testing.assert_allclose(strict_law(ASYMMETRIC, 2, 0.7, GRID).probability, strict / strict.sum(), rtol=1e-5)


def test_gaussian_posterior_has_its_closed_form():
    """A data term of ½w² above 0 and a Gaussian prior below make every θ standard normal under p*(θ)."""
    problem = Quadratic([1.0] * 4, [0.0] * 4, pull=1.0)
    grid = Grid([-8, -4, -2, -1, 0, 1, 2, 4, 8], nodes=12)
    law = formal_law(problem, 2, 1.0, grid)
    np.testing.assert_allclose(law.probability, 1 / 6)
    # θ_k: with probability ½ in c and then Gaussian, else its negative half.
    normal = np.diff(norm.cdf(grid.edges))
    wanted = 0.5 * normal + 0.5 * np.where(grid.edges[1:] <= 0, 2 * normal, 0)
    np.testing.assert_allclose(law.theta, np.tile(wanted, (4, 1)), atol=1e-9)


def test_temperature_tempers():
    """Dividing T by two is the same as doubling the energy."""
    doubled = Quadratic(2 * ASYMMETRIC.curvature, ASYMMETRIC.best, l1=0.6, theta_min=-1.0)
    one, other = formal_law(ASYMMETRIC, 2, 0.5, GRID), formal_law(doubled, 2, 1.0, GRID)
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-10)


def test_a_vanishing_negative_side_turns_the_formal_law_into_the_strict_one():
    """And soft-DEEP R with exactly K active is the strict law at any depth of the box."""
    strict = strict_law(ASYMMETRIC, 2, 1.0, GRID).probability
    gaps = []
    for depth in (1.0, 0.1, 0.01):
        grid = Grid([-depth, *GRID.edges[GRID.below :]], nodes=8)
        gaps.append(np.abs(formal_law(ASYMMETRIC, 2, 1.0, grid).probability - strict).sum())
        soft = soft_law(ASYMMETRIC, 1.0, grid).by_number()[set_number(architectures(3, 2))]
        np.testing.assert_allclose(soft / soft.sum(), strict, rtol=1e-9)
    assert gaps[0] > 0.05
    assert gaps[2] < 0.02 * gaps[0]


def test_compatible_counts_of_the_soft_law_are_the_formal_law():
    """p*(c) ∝ p*(θ_{∉c} < 0) again, this time read off the sets of active connections."""
    rows = architectures(3, 2)
    share = soft_law(ASYMMETRIC, 1.0, GRID).by_number()
    counts = compatible_counts(np.round(share * 1e15).astype(np.int64)[None], rows)[0]
    np.testing.assert_allclose(counts / counts.sum(), formal_law(ASYMMETRIC, 2, 1.0, GRID).probability, rtol=1e-9)


@pytest.mark.parametrize("problem", [
    ASYMMETRIC,
    Quadratic([1.0, 0.3], [1.0, -0.5], l1=0.2, pull=2.0),
    Logistic([[1.0, -0.5], [0.3, 1.2], [-0.7, 0.4]], [1, -1, 1], [1, -1], l1=0.4, pull=1.5),
])  # fmt: skip
def test_gradients_are_those_of_the_energies(problem):
    theta = np.random.default_rng(3).uniform(-1, 2, (50, problem.connections))
    nudge, gradient = 1e-6, problem.gradient(theta)
    for k in range(problem.connections):
        move = nudge * (np.arange(problem.connections) == k)
        slope = (problem.energy(theta + move) - problem.energy(theta - move)) / (2 * nudge)
        np.testing.assert_allclose(gradient[:, k], slope, atol=1e-6)


def test_what_is_refused():
    with pytest.raises(ValueError, match="must include 0"):
        Grid([-1, -0.5, 0.5, 1])
    with pytest.raises(ValueError, match="must rise"):
        Grid([-1, 0, 0, 1])
    with pytest.raises(ValueError, match="wander off"):
        Quadratic([1.0], [1.0])
    with pytest.raises(ValueError, match=r"active \(=4\) must be in \[1, 3\]"):
        architectures(3, 4)
    with pytest.raises(ValueError, match="at most"):
        formal_law(Hidden(Quadratic([1.0] * 6, [1.0] * 6, theta_min=-1.0)), 2, 1.0, GRID)
