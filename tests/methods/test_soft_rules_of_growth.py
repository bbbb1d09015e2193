"""Removal by chance and growth from the wiring: their laws, their limits, and that K stays."""

import itertools

import pytest
import torch
from rival_helpers import OPTIMIZERS, bits, same, small, steps
from torch import nn

import wirebound as wb
from wirebound.methods.drop import Magnitude, SoftMagnitude, Stock
from wirebound.methods.grow import Growth, Topological
from wirebound.ops import philox


def _stock(weights, step=1):
    weights = torch.tensor(weights)
    return Stock(weights, weights, None, 3, 8, step)


def test_gumbels_have_their_mean_and_variance():
    found = philox.gumbels(5, 7, 1, 20_000, torch.device("cpu"))
    assert abs(found.mean() - 0.5772) < 0.03
    assert abs(found.var() - 1.6449) < 0.06
    assert torch.equal(found[:100], philox.gumbels(5, 7, 1, 100, torch.device("cpu")))


def test_connections_go_in_proportion_to_a_power_of_their_size():
    weights = [0.5, -1.0, 2.0, -4.0]
    for temperature in (1.0, 0.5):
        counts = torch.zeros(4)
        for step in range(600):
            counts[SoftMagnitude(temperature)(_stock(weights, step), 1)] += 1
        expected = torch.tensor(weights).abs() ** (-1 / temperature)
        expected = 600 * expected / expected.sum()
        assert ((counts - expected) ** 2 / expected).sum() < 16.3, temperature  # χ² of 3: p < 0.001


def test_the_limits_are_magnitude_and_chance():
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(50, generator=generator).tolist()
    for temperature in (0.0, 1e-6, lambda step: 0.0):
        assert torch.equal(SoftMagnitude(temperature)(_stock(weights), 20), Magnitude()(_stock(weights), 20))
    counts = torch.zeros(3)
    for step in range(450):
        counts[SoftMagnitude(float("inf"))(_stock([1.0, 10.0, 100.0], step), 1)] += 1
    assert ((counts - 150) ** 2 / 150).sum() < 13.8
    assert SoftMagnitude()(_stock([1.0, 0.0, 2.0, 0.0]), 2).tolist() == [1, 3]  # nothing is smaller than 0
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=rf"temperature \(={wrong}\) must be a number >= 0"):
            SoftMagnitude(wrong)
    with pytest.raises(ValueError, match=r"temperature \(=-2\) must be a number >= 0"):
        SoftMagnitude(lambda step: -2)(_stock(weights), 2)


def _scores(matrix, power):
    """By the definition: a sum over all paths of length three, of one dense 0/1 matrix [n_out, n_in]."""
    rows, columns = matrix.sum(1), matrix.sum(0)
    scaled = matrix * (rows[:, None] * columns[None, :]).clamp(min=1) ** -power
    return (matrix @ scaled.t() @ matrix) * (1 - matrix)  # v ← u' ← v' ← u


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_first_newborns_are_in_proportion_to_the_paths_that_they_close(power):
    layer = wb.SparseLinear(7, 6, bias=False, budget=14, seed=1)
    positions = layer.wiring.positions()
    survivors, dead = positions[:-1], positions[-1:]
    matrix = torch.zeros(42)
    matrix[survivors] = 1
    matrix = matrix.view(7, 6).t().double()
    expected = _scores(matrix, power).t().reshape(-1)
    seen = torch.zeros(42, dtype=torch.float64)
    for step in range(1, 301):
        seen[Topological(power)(Growth(layer.wiring, survivors, dead, [1], {}, step))] += 1
    possible = expected > 0
    assert not seen[~possible].any()
    expected = 300 * expected[possible] / expected.sum()
    freedom = int(possible.sum()) - 1
    assert freedom > 8
    assert ((seen[possible] - expected) ** 2 / expected).sum() < freedom + 4 * (2 * freedom) ** 0.5


def test_where_there_are_no_paths_growth_is_uniform():
    layer = wb.SparseLinear(9, 9, bias=False, budget=9, seed=0)
    survivors = torch.arange(3) * 10  # single connections: nothing is three steps apart
    dead = torch.tensor([1, 2, 3, 4, 5, 6])
    born = Topological()(Growth(layer.wiring, survivors, dead, [6], {}, 1))
    assert born.numel() == 6
    assert not torch.isin(born, survivors).any()
    everyone = torch.arange(9)
    alone = Topological()(Growth(layer.wiring, everyone[:0], everyone, None, {}, 1))  # all died
    assert alone.numel() == 9
    with pytest.raises(ValueError, match=r"power \(=2\) must be in \[0, 1\]"):
        Topological(2)


GROWS = [Topological(), wb.grow.SampledGradient(), wb.grow.SampledGradient(0.3, towards_sign=True)]
LIMITS = [None, wb.Constraints(max_fan_in=6, max_fan_out=6), wb.Constraints(dale=0.5)]


@pytest.mark.parametrize(("grow", "limits", "scope"), list(itertools.product(GROWS, LIMITS, ["layer", "global"])))
def test_every_combination_keeps_the_budget_and_follows_the_seed(grow, limits, scope):
    def run():
        model = small(constraints=limits)
        wb.freeze(model[4])
        frozen, rewired = model[4].dense_weight(), []
        method = wb.Evolve(
            model, OPTIMIZERS["momentum"](model.parameters()), drop=SoftMagnitude(), grow=grow, when=wb.when.Every(2, 0.3), scope=scope
        )  # fmt: skip

        def each(info):
            for wiring in wb.wirings(model):
                wiring.check()
            assert info.active == info.budget
            rewired.append(info.rewired)

        steps(model, method, 6, each)
        assert sum(rewired) > 10
        assert torch.equal(frozen, model[4].dense_weight())
        return bits(model)

    assert same(run(), run())


def test_walks_stay_within_their_layer():
    model = wb.sparsify(nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 10)), 0.2, seed=0)
    (wiring,) = wb.wirings(model)
    positions = wiring.positions()
    only_first = positions[positions < 600]
    born = Topological()(Growth(wiring, only_first, positions[positions >= 600], None, {}, 1))
    assert bool((born < 600).all())  # the other layer has no connection left to walk along
