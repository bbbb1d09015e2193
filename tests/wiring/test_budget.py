"""Allocations: the total is exactly what was asked for, whatever the rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirebound.wiring.budget import RULES, allocate, apportion, settle_budget

MNIST = [(300, 784), (100, 300), (10, 100)]
NAMES = ["0", "2", "4"]


@pytest.mark.parametrize("connectivity", [0.003, 0.01, 0.013, 0.02])
def test_the_papers_multipliers_on_its_mnist_network(connectivity):
    counts = allocate(NAMES, MNIST, "paper", connectivity, None)
    assert sum(counts) == round(connectivity * 266_200)
    for count, (rows, columns), multiplier in zip(counts, MNIST, (0.75, 2.3, 22.8), strict=True):
        # The printed multipliers add up to 100.75 %: settled in proportion, each is met within 1 %, or one connection.
        assert abs(count - multiplier * connectivity * rows * columns) <= max(1.0, 0.01 * count)


def test_the_papers_output_layer_becomes_dense_at_higher_connectivity():
    assert allocate(NAMES, MNIST, "paper", 0.05, None)[2] == 1000


def test_rule_of_thumb_elsewhere_equal_counts_and_small_ones_dense():
    assert allocate(["a", "b", "c"], [(200, 784), (200, 200), (10, 200)], "paper", None, 9000) == [3500, 3500, 2000]


def test_uniform_and_erdos_renyi():
    assert allocate(NAMES, MNIST, "uniform", 0.01, None) == [2352, 300, 10]
    counts = allocate(NAMES, MNIST, "erdos-renyi", 0.01, None)
    assert counts == [1810, 668, 184]  # in proportion to 1084, 400, 110


def test_given_values():
    assert allocate(NAMES, MNIST, [100, 50, 7], None, None) == [100, 50, 7]
    assert allocate(NAMES, MNIST, {"0": 0.01, "2": 0.02, "4": 1.0}, None, None) == [2352, 600, 1000]
    assert sum(allocate(NAMES, MNIST, [0.01, 0.02, 0.5], None, 1234)) == 1234


@given(
    capacities=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    weights=st.lists(st.floats(0.01, 1e6), min_size=6, max_size=6),
    share=st.floats(0, 1),
)
def test_apportion_is_exact(capacities, weights, share):
    total = round(share * sum(capacities))
    counts = apportion(weights[: len(capacities)], capacities, total)
    assert sum(counts) == total
    assert all(0 <= count <= capacity for count, capacity in zip(counts, capacities, strict=True))
    if total >= len(capacities):
        assert all(count > 0 for count, capacity in zip(counts, capacities, strict=True) if capacity)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=5),
    rule=st.sampled_from(sorted(RULES)),
    connectivity=st.floats(0.001, 1),
)
def test_every_rule_is_exact(shapes, rule, connectivity):
    possible = sum(a * b for a, b in shapes)
    if round(connectivity * possible) >= 1:
        counts = allocate([str(i) for i in range(len(shapes))], shapes, rule, connectivity, None)
        assert sum(counts) == round(connectivity * possible)


@pytest.mark.parametrize(
    ("connectivity", "budget", "message"),
    [
        (0.0, None, r"connectivity \(=0.0\) must be in \(0, 1\]"),
        (1.7, None, r"connectivity \(=1.7\) must be in \(0, 1\]"),
        (float("nan"), None, r"connectivity \(=nan\) must be in \(0, 1\]"),
        (1e-9, None, "must leave at least one"),
        (None, 0, r"budget \(=0\) must be in \[1, 100\]"),
        (None, 101, r"budget \(=101\) must be in \[1, 100\]"),
        (None, 2.5, "must be a whole number"),
        (None, None, "exactly one of"),
        (0.1, 10, "exactly one of"),
    ],
)
def test_wrong_budgets(connectivity, budget, message):
    with pytest.raises(ValueError, match=message):
        settle_budget(connectivity, budget, 100)


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        ("thumb", "must be one of"),
        ([0.1], "1 values for 3 layers"),
        ({"0": 0.1}, r"missing \['2', '4'\]"),
        ([0.1, 0.1, 1.2], r"layer '4' \(=1.2\)"),
        ([1, 2, 5000], r"layer '4' \(=5000\) must be in \[0, 1000\]"),
    ],
)
def test_wrong_allocations(allocation, message):
    with pytest.raises(ValueError, match=message):
        allocate(NAMES, MNIST, allocation, 0.01 if isinstance(allocation, str) else None, None)


def test_counts_that_contradict_the_budget():
    with pytest.raises(ValueError, match="adds up to 157 connections, but the budget is 200"):
        allocate(NAMES, MNIST, [100, 50, 7], None, 200)
