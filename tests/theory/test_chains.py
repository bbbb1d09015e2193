"""The chains against their laws: with a fixed seed they agree within the sampling error, and wrong laws are refused."""

import math

import numpy as np
import pytest

from wirebound_lab.theory import (
    Grid,
    Logistic,
    Quadratic,
    architectures,
    compatible_counts,
    deep_r_step,
    distance,
    draw_constraint,
    formal_law,
    formal_step,
    lazy_step,
    run,
    set_number,
    soft_deep_r_step,
    soft_law,
    strict_law,
    total_variation,
    wall,
)

EDGES = [0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 7]
BOX = Grid([-1, -0.5, *EDGES], nodes=5)
OPEN = Grid([-6, -3, -1.5, -0.7, *EDGES], nodes=8)
ASYMMETRIC = Quadratic([1.0, 2.0, 1.0, 0.5], [1.5, 1.0, 0.5, -1.0], l1=0.3, theta_min=-1.0)
PULLED = Quadratic([1.0, 2.0, 1.0, 0.5], [1.5, 1.0, 0.5, -1.0], l1=0.3, pull=1.0)
SYMMETRIC = Quadratic([1.0] * 4, [0.8] * 4, l1=0.2, theta_min=-1.0)
LOGISTIC = Logistic(
    [[-0.8, -1.3, -0.2], [0.7, -0.5, -0.7], [-0.6, -0.5, 0.3], [0.6, 1.0, 0.0], [1.2, 0.1, -1.0], [0.3, -0.9, 1.1]],
    [1, 1, -1, -1, 1, 1],
    [1, -1, 1],
    l1=1.0,
    theta_min=-1.0,
)


def _run(step, problem, grid=BOX, *, eta=0.02, temperature=1.0, active=2, chains=1024, span=20.0, burn_in=15.0, seed=1):
    return run(
        step,
        problem,
        active,
        grid,
        eta=eta,
        temperature=temperature,
        chains=chains,
        steps=round(span / eta),
        burn_in=round(burn_in / eta),
        every=max(1, round(0.25 / eta)),
        seed=seed,
    )


# Steps of 0.02 leave an error of their own, beside that of sampling; test_smaller_steps_come_closer measures how it falls.
STEP_ERROR = 0.01


@pytest.mark.parametrize(
    ("problem", "grid", "temperature"),
    [(SYMMETRIC, BOX, 1.0), (ASYMMETRIC, BOX, 0.7), (PULLED, OPEN, 1.0), (LOGISTIC, BOX, 1.0)],
    ids=["symmetric", "asymmetric", "gaussian-below", "logistic"],
)
def test_the_formal_chain_samples_the_formal_law(problem, grid, temperature):
    record = _run(formal_step, problem, grid, temperature=temperature)
    law = formal_law(problem, 2, temperature, grid)
    found = distance(record.constraints, law.by_number())
    assert found.value <= found.limit + STEP_ERROR
    for k in range(problem.connections):
        found = distance(record.theta[:, k], law.theta[k])
        assert found.value <= found.limit + STEP_ERROR
    # T_c keeps to the rule: c has K members, and contains all θ >= 0.
    numbers = np.arange(1 << problem.connections)
    assert all(bin(n).count("1") == 2 for n in numbers[record.constraints.sum(0) > 0])
    assert all(bin(n).count("1") <= 2 for n in numbers[record.active.sum(0) > 0])


def test_wrong_laws_are_refused():
    """The comparison above can fail: it does for another temperature, for even odds, and for other budgets' laws."""
    record = _run(formal_step, ASYMMETRIC, temperature=0.7)
    rows = architectures(4, 2)
    seen = record.constraints[:, set_number(rows)]
    for wrong in (
        formal_law(ASYMMETRIC, 2, 1.4, BOX).probability,
        strict_law(ASYMMETRIC, 2, 0.7, BOX).probability,
        np.full(len(rows), 1 / len(rows)),
    ):
        found = distance(seen, wrong)
        assert found.value > found.limit + 3 * STEP_ERROR
    hotter = formal_law(ASYMMETRIC, 2, 1.4, BOX)
    found = distance(record.theta[:, 0], hotter.theta[0])
    assert found.value > found.limit + STEP_ERROR


def test_a_chain_that_forgets_a_rule_is_refused():
    """T_c must draw evenly: a draw that prefers the first connections gives another law."""

    def biased(problem, theta, c, eta, temperature, generator):
        theta, _ = formal_step(problem, theta, c, eta, temperature, generator)
        keys = generator.random(theta.shape) * (1 + np.arange(4)) - (theta >= 0) * 10
        return theta, keys <= np.sort(keys, axis=1)[:, 1:2]

    found = distance(_run(biased, SYMMETRIC).constraints, formal_law(SYMMETRIC, 2, 1.0, BOX).by_number())
    assert found.value > found.limit + 3 * STEP_ERROR


@pytest.mark.parametrize(
    ("problem", "temperature"), [(ASYMMETRIC, 0.7), (LOGISTIC, 1.0)], ids=["asymmetric", "logistic"]
)
def test_deep_r_samples_the_strict_law_and_not_the_formal_one(problem, temperature):
    record = _run(deep_r_step, problem, temperature=temperature, eta=0.01)
    strict, formal = strict_law(problem, 2, temperature, BOX), formal_law(problem, 2, temperature, BOX)
    found = distance(record.constraints, strict.by_number())
    assert found.value <= found.limit + 1.5 * STEP_ERROR
    assert distance(record.constraints, formal.by_number()).value > found.limit + 5 * STEP_ERROR
    for k in range(problem.connections):
        # Newborns pile up at 0, as many as a stretch of ``wall`` holds at the density that θ has there.
        pile = wall(0.01, temperature) * strict.theta[k, BOX.below] / 0.5
        found = distance(BOX.merged(record.theta[:, k]), BOX.merged(strict.theta[k]))
        assert found.value <= found.limit + pile
    gaps = [distance(BOX.merged(record.theta[:, k]), BOX.merged(formal.theta[k])) for k in range(problem.connections)]
    assert max(gap.value for gap in gaps) > 0.1


@pytest.mark.parametrize("problem", [ASYMMETRIC, LOGISTIC], ids=["asymmetric", "logistic"])
def test_soft_deep_r_samples_the_tempered_posterior(problem):
    """Up to the pile at the clipped end of the box, which weighs what ``wall`` says."""
    eta = 0.02
    record = _run(soft_deep_r_step, problem, eta=eta)
    wide = Grid([-1 - wall(eta, 1.0), *BOX.edges[1:]], nodes=5)
    law = soft_law(problem, 1.0, wide)
    found = distance(record.active, law.by_number())
    assert found.value <= found.limit + STEP_ERROR
    assert distance(record.active, soft_law(problem, 1.0, BOX).by_number()).value > found.value
    for k in range(problem.connections):
        found = distance(record.theta[:, k], law.theta[k])
        assert found.value <= found.limit + STEP_ERROR
    # What the paper says about the two algorithms: with exactly K, soft-DEEP R visits architectures as DEEP R does.
    rows = architectures(problem.connections, 2)
    found = distance(record.active[:, set_number(rows)], strict_law(problem, 2, 1.0, BOX).probability)
    assert found.value <= found.limit + STEP_ERROR
    compatible = distance(compatible_counts(record.active, rows), formal_law(problem, 2, 1.0, wide).probability)
    assert compatible.value <= compatible.limit + STEP_ERROR


def test_smaller_steps_come_closer():
    """DEEP R's pile of newborns at 0 falls as √η: a quarter of the step size, about half of the distance."""
    law = BOX.merged(strict_law(SYMMETRIC, 2, 1.0, BOX).theta).mean(0)
    gaps = []
    for eta in (0.16, 0.04, 0.01):
        record = _run(deep_r_step, SYMMETRIC, eta=eta, chains=1024, span=16.0, burn_in=8.0)
        counts = BOX.merged(record.theta).sum((0, 1))
        gaps.append(total_variation(counts / counts.sum(), law))
    assert gaps[0] > 1.5 * gaps[1] > 1.5 * 1.5 * gaps[2]


@pytest.mark.parametrize("step", [formal_step, deep_r_step, soft_deep_r_step])
def test_drift_alone(step):
    """At T = 0 there is no noise: every θ follows gradient descent, all chains the same one, and no number is drawn."""
    problem = Quadratic([0.5, 1.0], [2.0, 1.0], l1=0.1, theta_min=-1.0)
    theta, c = np.full((3, 2), 0.5), np.ones((3, 2), dtype=bool)
    generator = np.random.default_rng(0)
    goal = problem.best - problem.l1 / problem.curvature
    for number in range(1, 51):
        theta, c = step(problem, theta, c, 0.1, 0.0, generator)
        wanted = goal + (0.5 - goal) * (1 - 0.1 * problem.curvature) ** number
        np.testing.assert_allclose(theta, np.tile(wanted, (3, 1)), rtol=1e-12)


def test_dormant_parameters_stay_as_they_are_in_the_formal_chain():
    theta = np.array([[0.5, -0.3, -0.7, -0.2]] * 100)
    c = np.array([[True, True, False, False]] * 100)
    moved, _ = formal_step(ASYMMETRIC, theta, c, 0.01, 1.0, np.random.default_rng(0))
    assert (moved[:, 2:] == theta[:, 2:]).all()
    assert (moved[:, :2] != theta[:, :2]).all()


def test_newborns_start_at_zero_and_the_dormant_are_forgotten():
    theta = np.array([[1e-9, 2.0, -1.0, -1.0]] * 4000)
    c = theta >= 0
    problem = Quadratic([1.0] * 4, [-5.0, 2.0, 0.0, 0.0], theta_min=-1.0)
    moved, now = deep_r_step(problem, theta, c, 0.01, 0.0, np.random.default_rng(0))
    assert now[:, 1].all()  # it stood still at its optimum
    assert (now.sum(1) == 2).all()
    assert (moved[now & (np.arange(4) != 1)] == 0).all()
    assert (moved[~now] < 0).all()
    # Who died is among the dormant, and is drawn as often as they are: one in three.
    assert now[:, [0, 2, 3]].mean(0) == pytest.approx([1 / 3] * 3, abs=0.03)


def test_noise_alone():
    """Without a slope, θ walks with variance 2ηTn; and in a box it is spread evenly."""
    flat = Quadratic([0.0] * 2, [0.0] * 2, theta_min=-1e9)
    theta, c = np.full((20_000, 2), 1e6), np.ones((20_000, 2), dtype=bool)
    generator = np.random.default_rng(0)
    for _ in range(30):
        theta, c = formal_step(flat, theta, c, 0.1, 0.3, generator)
    assert theta.mean() == pytest.approx(1e6, abs=5 * math.sqrt(1.8 / 40_000))
    assert theta.var() == pytest.approx(2 * 0.1 * 0.3 * 30, rel=5 * math.sqrt(2 / 40_000))


def test_the_draw_of_a_constraint_is_even_among_the_compatible():
    kept = np.array([[False, True, False, False, False]] * 30_000)
    drawn = draw_constraint(kept, 3, np.random.default_rng(0))
    assert drawn[:, 1].all()
    counts = np.bincount(set_number(drawn), minlength=32)
    assert (counts > 0).sum() == 6
    assert counts[counts > 0] == pytest.approx(5000, abs=5 * math.sqrt(5000))
    with pytest.raises(ValueError, match="more than K"):
        draw_constraint(np.ones((1, 5), dtype=bool), 3, np.random.default_rng(0))


def test_same_seed_same_run():
    one, two = (_run(deep_r_step, SYMMETRIC, span=1.0, burn_in=0.0, chains=64, seed=s) for s in (4, 4))
    assert (one.theta == two.theta).all()
    assert (one.theta != _run(deep_r_step, SYMMETRIC, span=1.0, burn_in=0.0, chains=64, seed=5).theta).any()


def test_the_sampling_error_is_what_it_says():
    """Draws from the right law exceed the limit rarely, and lie near the error that is stated."""
    generator = np.random.default_rng(2)
    law = np.array([0.5, 0.3, 0.15, 0.05])
    found = [distance(generator.multinomial(200, law, size=64), law, seed=i) for i in range(60)]
    assert sum(d.agrees for d in found) >= 58
    ratio = np.mean([d.value for d in found]) / np.mean([d.expected for d in found])
    assert 0.85 < ratio < 1.15


@pytest.mark.slow
def test_long_runs_at_small_steps_leave_no_room():
    """Ten times the samples at a quarter of the step size: all three within the sampling error and a third of a per cent."""
    eta, temperature = 0.005, 0.7
    few = {"eta": eta, "temperature": temperature, "chains": 4096, "span": 60.0, "burn_in": 20.0}
    formal = formal_law(ASYMMETRIC, 2, temperature, BOX)
    found = distance(_run(formal_step, ASYMMETRIC, **few).constraints, formal.by_number())
    assert found.value <= found.limit + 0.003
    strict = strict_law(ASYMMETRIC, 2, temperature, BOX)
    found = distance(_run(deep_r_step, ASYMMETRIC, **few).constraints, strict.by_number())
    assert found.value <= found.limit + 0.003
    wide = Grid([-1 - wall(eta, temperature), *BOX.edges[1:]], nodes=5)
    found = distance(
        _run(soft_deep_r_step, ASYMMETRIC, **few).active, soft_law(ASYMMETRIC, temperature, wide).by_number()
    )
    assert found.value <= found.limit + 0.003


def test_inputs_that_are_off_at_times_keep_the_law_if_newborns_come_to_those_that_are_on():
    """Time runs by the steps in which an input is on, for births as for deaths; births anywhere would favour who is rarely on."""
    on, temperature = (1.0, 0.5, 0.25, 0.5), 0.7
    strict = strict_law(ASYMMETRIC, 2, temperature, BOX).by_number()
    few = {"temperature": temperature, "eta": 0.01, "chains": 512, "span": 20.0, "burn_in": 20.0}
    found = distance(_run(lazy_step(on), ASYMMETRIC, **few).constraints, strict)
    assert found.value <= found.limit + STEP_ERROR
    wrong = distance(_run(lazy_step(on, births="anywhere"), ASYMMETRIC, **few).constraints, strict)
    assert wrong.value > wrong.limit + 10 * STEP_ERROR


def test_inputs_that_are_always_on_make_no_difference():
    few = {"span": 1.0, "burn_in": 0.0, "chains": 64}
    lazy, plain = _run(lazy_step((1.0,) * 4), SYMMETRIC, **few), _run(deep_r_step, SYMMETRIC, **few)
    assert lazy.samples == plain.samples
    assert (lazy.active.sum(0) > 0).sum() == (plain.active.sum(0) > 0).sum()
