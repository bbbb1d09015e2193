"""Drop rules against what their names say."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wirebound.methods import drop


def _stock(weights, gradient=None, signs=None, step=1):
    weights = torch.tensor(weights, dtype=torch.float64)
    gradient = torch.ones_like(weights) if gradient is None else torch.tensor(gradient, dtype=torch.float64)
    signs = None if signs is None else torch.tensor(signs, dtype=torch.int8)
    return drop.Stock(weights, gradient, signs, 3, 8, step)


# Few different values, so that ties are common.
values = st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=20)


@settings(max_examples=150, deadline=None)
@given(weights=values, data=st.data())
def test_every_rule_gives_sorted_indices_and_never_too_many(weights, data):
    most = data.draw(st.integers(0, len(weights)))
    stock = _stock(weights, [w - 0.25 for w in weights], [1] * len(weights))
    exact = (drop.Magnitude(), drop.SmallestOfEachSign(), drop.Sensitivity(), drop.Random())
    for rule in (*exact, drop.Below(0.75), drop.SignFlips()):
        picked = rule(stock, most).tolist()
        assert picked == sorted(set(picked))
        assert all(0 <= i < len(weights) for i in picked)
        assert len(picked) == most if rule in exact else len(picked) <= most


@settings(max_examples=100, deadline=None)
@given(weights=values, data=st.data())
def test_smallest_is_a_stable_sort(weights, data):
    count = data.draw(st.integers(0, len(weights)))
    expected = sorted(sorted(range(len(weights)), key=lambda i: weights[i])[:count])
    assert drop.smallest(torch.tensor(weights), count).tolist() == expected


def test_magnitude_and_sensitivity():
    stock = _stock([3.0, -0.1, 0.2, -4.0, 0.5], [0.01, 9.0, 1.0, 0.001, 1.0])
    assert drop.Magnitude()(stock, 2).tolist() == [1, 2]
    assert drop.Sensitivity()(stock, 2).tolist() == [0, 3]


def test_each_sign_loses_its_own_share():
    weights = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, -5.0, -6.0, -7.0]
    assert drop.SmallestOfEachSign()(_stock(weights), 3).tolist() == [0, 1, 6]
    assert drop.Magnitude()(_stock(weights), 3).tolist() == [0, 1, 2]


def test_rules_with_a_count_of_their_own():
    stock = _stock([0.5, -0.5, 0.0, -0.1, 2.0], signs=[1, 1, -1, 1, -1])
    assert drop.Below(0.3)(stock, 5).tolist() == [2, 3]
    assert drop.Below(0.3)(stock, 1).tolist() == [2]
    assert drop.SignFlips()(stock, 5).tolist() == [1, 3, 4]  # a weight of 0 has not crossed
    assert drop.SignFlips()(stock, 1).tolist() == [4]
    with pytest.raises(ValueError, match=r"threshold \(=-1\)"):
        drop.Below(-1)


def test_random_follows_seed_and_step_and_is_uniform():
    weights = [1.0] * 8
    assert torch.equal(drop.Random()(_stock(weights), 4), drop.Random()(_stock(weights), 4))
    counts = torch.zeros(8)
    for step in range(800):
        counts[drop.Random()(_stock(weights, step=step), 2)] += 1
    expected = 200.0
    assert ((counts - expected) ** 2 / expected).sum() < 24  # χ² of 7 degrees of freedom: p < 0.001
