"""``l1="auto"``: α follows from what becomes of connections, under any optimiser, and costs O(layers)."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.methods import turnover
from wirebound.methods.turnover import FIRST, LEAST, MOST, PERIODS, Price, next_look
from wirebound_lab.data import load

OPTIMIZERS = {
    "sgd": lambda p, scale=1.0: torch.optim.SGD(p, lr=0.5 * scale),
    "momentum": lambda p, scale=1.0: torch.optim.SGD(p, lr=0.05 * scale, momentum=0.9),
    "nesterov": lambda p, scale=1.0: torch.optim.SGD(p, lr=0.05 * scale, momentum=0.9, nesterov=True),
    "adam": lambda p, scale=1.0: torch.optim.Adam(p, lr=0.02 * scale),
    "amsgrad": lambda p, scale=1.0: torch.optim.Adam(p, lr=0.02 * scale, amsgrad=True),
    "adamw": lambda p, scale=1.0: torch.optim.AdamW(p, lr=0.02 * scale),
    "rmsprop": lambda p, scale=1.0: torch.optim.RMSprop(p, lr=0.01 * scale),
}


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def _model(scope="global", connectivity=0.1, seed=0):
    layers = nn.Sequential(nn.Linear(64, 60), nn.ReLU(), nn.Linear(60, 40), nn.ReLU(), nn.Linear(40, 10))
    return wb.sparsify(layers, connectivity, scope=scope, init="sparse-fan-in", seed=seed)


def _steps(method, count, digits, batch=32):
    """Steps on the digits, in an order that depends on the step alone; the share that was replaced in each."""
    shares = []
    for _ in range(count):
        generator = torch.Generator().manual_seed(method.steps)
        chosen = torch.randint(len(digits.train_y), (batch,), generator=generator)
        F.cross_entropy(method.model(digits.inputs("train", flatten=True)[chosen]), digits.train_y[chosen]).backward()
        shares.append(method.step().rewired / method.budget)
        method.zero_grad()
    return shares


def find(wiring, positions):
    """Where connections are stored, and which of them are there."""
    places = ops.backend_on(positions.device).find(wiring, positions)
    return places, places >= 0


def _accuracy(model, digits):
    with torch.no_grad():
        return float((model(digits.inputs("test", flatten=True)).argmax(1) == digits.test_y).float().mean())


@pytest.mark.parametrize("scale", [0.2, 1.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_turnover_is_the_wanted_one(name, scale, digits):
    """What is gone of the established connections is what κ asks for, although the α of these cases differ a lot."""
    model = _model()
    method = wb.DeepR(model, OPTIMIZERS[name](model.parameters(), scale), turnover=0.1)
    _steps(method, 1200, digits)
    (price,) = method.turnover.prices
    gone = expected = 0.0
    for _ in range(6):
        before, mean = price.established.clone(), float(method.wirings[0].theta.detach().mean())
        drawn, strength = price.drawn.clone(), price.strength.clone()
        _steps(method, PERIODS[1], digits)
        places, there = find(price.wiring, drawn)
        s = math.sqrt(float((price.wiring.theta.detach()[places[there]] - strength[there]).square().mean()) / PERIODS[1]) / mean
        gone += float((~find(price.wiring, before)[1]).sum())
        expected += len(before) * -math.expm1(-PERIODS[1] * 0.1 * s * 0.9)
    assert 0.3 < gone / expected < 2.0


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "rmsprop"])
def test_it_learns_at_least_as_well_as_without_rewiring(name, digits):
    accuracies = []
    for kind in (wb.DeepR, wb.Fixed):
        model = _model(connectivity=0.03)
        method = kind(model, OPTIMIZERS[name](model.parameters()))
        shares = _steps(method, 800, digits)
        accuracies.append(_accuracy(model, digits))
        assert kind is wb.Fixed or 0.001 < sum(shares[200:]) / 600 < turnover.FLICKER
    assert accuracies[0] > accuracies[1] - 0.01


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "amsgrad", "rmsprop"])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_resumes_bit_for_bit(name, scope, digits, tmp_path):
    def made():
        model = _model(scope)
        return wb.DeepR(model, OPTIMIZERS[name](model.parameters()))

    one = made()
    _steps(one, 110, digits)
    wb.save(tmp_path / "kept.safetensors", method=one)
    _steps(one, 90, digits)
    two = made()
    wb.load(tmp_path / "kept.safetensors", method=two)
    _steps(two, 90, digits)
    for mine, theirs in zip(wb.wirings(one.model), wb.wirings(two.model), strict=True):
        assert torch.equal(mine.positions(), theirs.positions())
        assert torch.equal(mine.theta, theirs.theta)
    assert [price.alpha for price in one.turnover.prices] == [price.alpha for price in two.turnover.prices]
    assert one.second_moments == two.second_moments
    three = copy.deepcopy(two)
    _steps(two, 60, digits)
    _steps(three, 60, digits)
    assert two.turnover.prices[0].alpha == three.turnover.prices[0].alpha > 0


def test_its_state_does_not_grow_with_the_budget(digits):
    def size(budget):
        model = wb.sparsify(nn.Sequential(nn.Linear(64, 4000), nn.ReLU(), nn.Linear(4000, 10)), budget=budget)
        method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1))
        _steps(method, 60, digits, 8)
        return sum(t.numel() for price in method.state_dict()["turnover"] for t in price.values() if isinstance(t, torch.Tensor))

    assert size(5_000) == size(50_000) == 2 * 3 * turnover.FOLLOWED


def test_a_scope_of_layers_has_a_price_for_each(digits):
    model = _model("layer")
    method = wb.DeepR(model, OPTIMIZERS["momentum"](model.parameters()))
    _steps(method, 200, digits)
    assert len({price.alpha for price in method.turnover.prices}) == 3
    assert all(price.alpha > 0 for price in method.turnover.prices)


def test_newborns_that_die_at_once_are_no_turnover(implementation):
    """Whoever came after the last look does not count as established, however many come and go."""
    model = wb.sparsify(nn.Linear(40, 30), connectivity=0.3)
    wiring = model.wiring
    price = Price(wiring, 0.1)
    price.look(25, 0.1)
    established = price.drawn.clone()
    for step in range(26, 50):  # the weakest leaves and comes back elsewhere, again and again
        dead = torch.nonzero(~torch.isin(wiring.positions(), established)).view(-1)[:5]
        if not dead.numel():
            dead = wiring.theta.detach().argmin().view(1)
        wiring.rewire_(dead, [], step, None)
    with torch.no_grad():
        wiring.theta += 0.01
    price.look(50, 0.1)
    followed = price.established.clone()
    assert len(followed) < len(established)
    assert find(wiring, followed)[1].all()
    alpha = price.alpha
    for step in range(51, 75):
        dead = torch.nonzero(~torch.isin(wiring.positions(), followed)).view(-1)[:5]
        wiring.rewire_(dead, [], step, None)
    with torch.no_grad():
        wiring.theta += 0.01
    price.look(75, 0.1)
    assert price.alpha > alpha  # none of those that were followed has gone


def test_find(implementation):
    model = wb.sparsify(nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 12), nn.Linear(12, 1)), 0.4)
    wiring = model[0].wiring
    stored = wiring.positions()
    everywhere = torch.arange(wiring.geometry.possible)
    places, there = find(wiring, everywhere)
    assert torch.equal(everywhere[there], stored)
    assert torch.equal(places[there], torch.arange(wiring.budget))
    assert find(wiring, everywhere[:0])[1].numel() == 0
    columns, rows = wiring.geometry.locate(everywhere)
    assert torch.equal(wiring.geometry.position_of(columns, rows), everywhere)


def test_bounds_and_what_cannot_be_replaced(digits):
    """A full layer replaces nothing, and α stays within what the prior allows."""
    model = wb.sparsify(nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10)), connectivity=1.0, scope="layer")
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), turnover=5.0)
    _steps(method, 300, digits)
    assert _accuracy(model, digits) > 0.85
    lively = wb.DeepR(fresh := _model(), torch.optim.SGD(fresh.parameters(), lr=0.5), turnover=50.0)
    _steps(lively, 600, digits)
    assert math.isfinite(lively.turnover.prices[0].alpha)
    assert 0 < LEAST < FIRST < MOST


def test_frozen_layers_rates_of_their_own_and_no_learning_rate(digits):
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    method = wb.DeepR(model, optimizer)
    wb.freeze(model[0])
    wb.set_rates(model[2], lr=0.5)
    _steps(method, 60, digits)
    assert method.turnover.prices[0].alpha == 0
    optimizer.param_groups[0]["lr"] = 0.3
    _steps(method, 100, digits)
    assert method.turnover.prices[0].alpha > 0


def test_when_it_looks():
    seen, step = [], 0
    while step < 900:
        step = next_look(step, 1)
        seen.append(step)
    assert seen == [*range(25, 501, 25), 600, 700, 800, 900]
    assert next_look(30, 4) == 100


def test_bad_input():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"turnover \(=0\) must be a finite number > 0"):
        wb.DeepR(model, optimizer, turnover=0)
    with pytest.raises(ValueError, match=r"l1 \(='automatic'\) must be 'auto' or a finite number >= 0"):
        wb.DeepR(model, optimizer, l1="automatic")
    with pytest.raises(ValueError, match=r"l1 \(='auto'\) must be a number, numbers or a schedule here"):
        wb.ConstantRate(model, optimizer, l1="auto")
    with pytest.raises(ValueError, match=r"newborn_moments \(='none'\) must be one of layer, own"):
        wb.DeepR(model, optimizer, newborn_moments="none")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda own: own.update(alpha=-1.0), "alpha"),
        (lambda own: own.update(alpha=math.nan), "alpha"),
        (lambda own: own["drawn"].__setitem__(0, 10**9), "drawn must be sorted positions below"),
        (lambda own: own["established"].copy_(own["established"].flip(0)), "established must be sorted"),
        (lambda own: own["strength"].__setitem__(0, math.inf), "strength must be finite"),
    ],
)
def test_a_state_that_makes_no_sense_is_refused_whole(change, words, digits):
    model = _model()
    method = wb.DeepR(model, OPTIMIZERS["sgd"](model.parameters()))
    _steps(method, 80, digits)
    state, alpha = method.state_dict(), method.turnover.prices[0].alpha
    change(state["turnover"][0])
    state["steps"] = 5
    with pytest.raises(ValueError, match=words):
        method.load_state_dict(state)
    assert (method.steps, method.turnover.prices[0].alpha) == (80, alpha)
