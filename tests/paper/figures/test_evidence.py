"""Differences seed by seed, their intervals, and the verdicts that follow."""

import pytest
from figure_helpers import made_outcomes

from wirebound_lab.paper.evidence import Difference, all_of, difference, paired_test
from wirebound_lab.paper.fig3 import _between
from wirebound_lab.paper.task_runs import MNIST, Scale


def test_the_interval_is_students():
    found = Difference((0.01, 0.02, 0.03))
    assert found.mean == pytest.approx(0.02)
    assert found.half == pytest.approx(2.920 * 0.01 / 3**0.5, rel=1e-4)
    assert Difference((0.01,)).half is None


def test_later_looks_have_a_wider_interval():
    five, ten = Difference((0.0, 0.01, 0.0, 0.01, 0.0)), Difference((0.0, 0.01) * 5)
    assert five.half == pytest.approx(2.132 * 0.0054772 / 5**0.5, rel=1e-3)
    assert ten.half == pytest.approx(2.262 * 0.0052705 / 10**0.5, rel=1e-3)
    assert paired_test([five]) == "paired, 90 % interval above 0"
    assert paired_test([ten], "below 2 points") == "paired, 95 % interval below 2 points"
    assert paired_test([five, ten], "above 0 at each level") == "paired, 90 % interval (95 % with 10 seeds) above 0 at each level"
    assert paired_test([]) == "paired, 90 % interval above 0"
    again = Difference((0.0, 0.01, 0.0, 0.01, 0.0), again=True)
    assert again.half == pytest.approx(2.776 * 0.0054772 / 5**0.5, rel=1e-3)
    assert paired_test([again]) == "paired, 95 % interval above 0"


def test_an_interval_with_both_answers_decides_nothing():
    assert Difference((0.010, 0.011, 0.012)).above() is True
    assert Difference((-0.010, -0.011, -0.012)).above() is False
    assert Difference((-0.010, 0.011, 0.012)).above() is None
    assert Difference((0.5,)).above() is None
    near = Difference((0.018, 0.019, 0.020))
    assert (near.above(0.01), near.above(0.03), near.above(0.0195)) == (True, False, None)


def test_one_level_that_fails_decides_a_claim_about_all():
    assert all_of([True, True]) is True
    assert all_of([True, None]) is None
    assert all_of([None, False, True]) is False
    assert all_of([]) is None


def test_differences_are_told_without_a_sign():
    assert Difference((-0.02, -0.01)).words("less error", "more error") == "1.50 ± 3.16 points more error"
    assert Difference((0.01,)).words("less error", "more error") == "1.00 points less error"


def test_differences_pair_runs_of_the_same_seed(tmp_path):
    more, less = ([MNIST.job(Scale.FITTED, method, 0.01, seed) for seed in range(3)] for method in ("deep-r", "fixed"))
    runs = {job.folder: (0.9 + 0.01 * seed, 0.01, [1, 1, 1]) for seed, job in enumerate(more)}
    runs |= {less[2].folder: (0.9, 0.01, [1, 1, 1]), less[0].folder: (0.88, 0.01, [1, 1, 1])}
    found = difference(made_outcomes(tmp_path, runs), more, less, "test_accuracy")
    assert found.values == pytest.approx((0.02, 0.02))
    nothing = difference(made_outcomes(tmp_path, {}), more, less, "test_accuracy")
    assert (nothing.count, nothing.above(), nothing.words("better", "worse")) == (0, None, "not run yet")


def test_a_rival_is_held_against_the_line_between_two_networks():
    networks = [{"connectivity": 0.05, "y": 0.8}, {"connectivity": 0.2, "y": 0.84}]
    assert _between(networks, "y", 0.1) == pytest.approx(0.82)
    assert _between(networks, "y", 0.051) == 0.8
    assert _between(networks, "y", 0.3) is None
    assert _between(networks, "y", 0.02) is None
