"""Schedules: in which steps, and how many."""

import math

import pytest

from wirebound.methods import when


def test_every_counts_steps_from_one_and_stops():
    schedule = when.Every(3, 0.2, until=9)
    assert [step for step in range(1, 20) if schedule.share(step)] == [3, 6]
    assert schedule.share(6) == 0.2
    assert when.Every(4, 0.2).share(4_000_000) == 0.2


def test_curves():
    assert when.constant(0.3)(1) == when.constant(0.3)(10**9) == 0.3
    for curve in (when.cosine(0.4, 100), when.linear(0.4, 100), when.inverse_power(0.4, 100, 3)):
        assert curve(0) == pytest.approx(0.4)
        assert curve(100) == curve(1000) == 0
        values = [curve(step) for step in range(101)]
        assert values == sorted(values, reverse=True)
    assert when.cosine(0.4, 100)(25) == pytest.approx(0.2 * (1 + math.cos(math.pi / 4)))
    assert when.linear(0.4, 100)(25) == pytest.approx(0.3)
    assert when.inverse_power(0.4, 100, 3)(50) == pytest.approx(0.4 / 8)


def test_a_function_of_the_step_is_a_curve():
    schedule = when.Every(2, lambda step: 1 / step)
    assert [schedule.share(step) for step in (1, 2, 4)] == [0, 1 / 2, 1 / 4]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: when.Every(0), r"every \(=0\) must be >= 1"),
        (lambda: when.Every(1, 1.5), r"share \(=1.5\) must be in \[0, 1\]"),
        (lambda: when.Every(1, math.nan), r"share \(=nan\) must be in"),
        (lambda: when.Every(1, 0.5, until=-1), r"until \(=-1\)"),
        (lambda: when.Every(1, lambda step: 2.0).share(1), r"share \(=2.0\) must be in"),
        (lambda: when.cosine(0.3, 0), r"until \(=0\) must be >= 1"),
        (lambda: when.linear(-0.1, 9), r"share \(=-0.1\)"),
        (lambda: when.inverse_power(0.3, 9, 0), r"power \(=0\)"),
    ],
)
def test_wrong_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
