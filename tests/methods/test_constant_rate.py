"""Re-activation at a constant rate: DEEP R as its limit, exact counts, uniform births, honest empty places."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.methods.constant_rate import reactivate_
from wirebound.ops import philox
from wirebound.ops.philox import binomial, uniform
from wirebound.wiring import LayerShape, Wiring

X = torch.randn(20, 9, generator=torch.Generator().manual_seed(1))
TARGET = torch.randn(20, 4, generator=torch.Generator().manual_seed(2))


def _model(scope="global"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 12), nn.Tanh(), nn.Linear(12, 4))
    return wb.sparsify(model, connectivity=0.4, scope=scope, init="sparse-fan-in")


def _steps(method, count):
    for _ in range(count):
        F.mse_loss(method.model(X), TARGET).backward()
        yield method.step()
        method.zero_grad()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_at_rate_1_it_is_deep_r(implementation, optimizer, scope):
    """Every empty place is filled at once: the same draws, the same run, bit for bit."""
    methods = []
    for kind, settings in ((wb.ConstantRate, {"rate": 1.0}), (wb.DeepR, {"newborns": "uniform", "newborn_moments": "own"})):
        model = _model(scope)
        made = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](model.parameters(), lr=0.05)
        methods.append(kind(model, made, l1=0.1, temperature=1e-5, **settings))
    for one, two in zip(*(_steps(method, 25) for method in methods), strict=True):
        assert one.layer_active == two.layer_active
        assert one.rewired == two.rewired
    for mine, theirs in zip(*(wb.wirings(method.model) for method in methods), strict=True):
        assert torch.equal(mine.positions(), theirs.positions())
        assert torch.equal(mine.theta, theirs.theta)
    assert sum(info.rewired for info in _steps(methods[0], 5)) > 0


def test_without_births_against_numpy(implementation):
    """θ of each connection drifts until it falls below 0, and stays 0 from then on."""
    model = _model()
    (wiring,) = wb.wirings(model)
    method = wb.ConstantRate(model, torch.optim.SGD(model.parameters(), lr=0.2), rate=0.0, l1=0.05, noise=0.0)
    theta = wiring.theta.detach().double().numpy().copy()
    alive = np.ones(len(theta), dtype=bool)
    positions = wiring.positions()
    for _ in range(30):
        F.mse_loss(model(X), TARGET).backward()
        gradient = wiring.theta.grad.double().numpy().copy()
        info = method.step()
        method.zero_grad()
        for k in range(len(theta)):
            if alive[k]:
                theta[k] += -0.2 * gradient[k] - 0.2 * 0.05
                if theta[k] < 0:
                    theta[k], alive[k] = 0.0, False
        assert np.allclose(wiring.theta.detach().numpy(), theta, atol=1e-6)
        assert np.array_equal(wiring.alive.numpy(), alive)
        assert info.active == wiring.active == alive.sum()
        wiring.check()
    assert info.active < wiring.budget - 10
    assert torch.equal(wiring.positions(), positions)
    assert method.highest_active == wiring.budget


def test_empty_places_keep_no_optimiser_state():
    model = _model()
    (wiring,) = wb.wirings(model)
    method = wb.ConstantRate(model, torch.optim.Adam(model.parameters(), lr=0.02), rate=0.003, l1=0.5)
    for _ in _steps(method, 30):
        empty = ~wiring.alive
        for name in ("exp_avg", "exp_avg_sq"):
            assert not method.optimizer.state[wiring.theta][name][empty].any()
        assert not wiring.theta[empty].any()
    assert 0 < wiring.active < wiring.budget


def test_newborns_are_uniform_over_all_dormant_connections():
    """Those that an empty place stands for included: 5 births a time among 17 dormant of 20."""
    wiring = Wiring([LayerShape("a", 4, 3), LayerShape("b", 2, 4)], [5, 3])
    wiring.keep_empty_places_()
    wiring.alive[torch.tensor([1, 2, 4, 5, 7])] = False
    wiring.theta.data[~wiring.alive] = 0
    active = wiring.positions()[wiring.alive].tolist()
    counts = np.zeros(20)
    births = 0
    for step in range(1, 801):
        copied = copy.deepcopy(wiring)
        born = reactivate_(copied, copied.alive, 0.1, [], step)
        copied.check()
        now = set(copied.positions()[copied.alive].tolist())
        assert set(active) < now or not sum(born)
        assert len(now) == 3 + sum(born)
        assert sum(position < 12 for position in now - set(active)) == born[0]
        births += sum(born)
        for position in now - set(active):
            counts[position] += 1
    dormant = np.delete(counts, active)
    expected = births / 17
    assert counts[active].sum() == 0
    assert ((dormant - expected) ** 2 / expected).sum() < 39.3  # χ² with 16 degrees of freedom, 0.1 %
    # Binomial(17, 0.1), cut off at 5 places
    pmf = [float(np.prod([(17 - j) / (j + 1) for j in range(i)])) * 0.1**i * 0.9 ** (17 - i) for i in range(18)]
    mean = sum(min(i, 5) * p for i, p in enumerate(pmf))
    assert births / 800 == pytest.approx(mean, abs=0.15)


@pytest.mark.parametrize(("n", "p"), [(10, 0.3), (1000, 0.002), (266_000, 1e-5), (50, 0.97), (5000, 0.5)])
def test_binomial_counts(n, p):
    """Equally spaced u give the binomial law itself."""
    drawn = np.array([binomial(n, p, (i + 0.5) / 4000) for i in range(4000)])
    assert drawn.min() >= 0
    assert drawn.max() <= n
    assert drawn.mean() == pytest.approx(n * p, abs=0.02 * np.sqrt(n * p * (1 - p)) + 1e-3)
    assert drawn.std() == pytest.approx(np.sqrt(n * p * (1 - p)), rel=0.02)


def test_binomial_at_its_ends():
    assert binomial(5, 0.0, 0.9) == binomial(0, 0.5, 0.9) == 0
    assert binomial(5, 1.0, 0.1) == 5
    assert 0 <= binomial(3, 0.5, 1 - 2**-53) <= 3


def test_single_numbers_are_those_of_the_stream():
    words = philox.words(77, 9, 1 << 40, 4, torch.device("cpu")).tolist()
    step = 1 << 40
    assert list(philox.philox(0, step & philox.MASK, step >> 32, 9, 77)) == words
    assert uniform(77, 9, step) == ((words[1] << 32 | words[0]) >> 11) / 2**53
    numbers = [uniform(1, 2, step) for step in range(2000)]
    assert 0 <= min(numbers) < 0.01 < 0.99 < max(numbers) < 1


def test_a_wiring_with_a_heavy_empty_place_is_at_fault():
    model = _model()
    wb.ConstantRate(model, torch.optim.SGD(model.parameters(), lr=0.1))
    (wiring,) = wb.wirings(model)
    wiring.alive[3] = False
    with pytest.raises(wb.WiringError, match="an empty place must have θ = 0, 1 have not"):
        wiring.check()


def test_bytes_count_what_is_there():
    model = _model()
    before = wb.wirings(model)[0].nbytes
    method = wb.ConstantRate(model, torch.optim.SGD(model.parameters(), lr=0.2), rate=0.0, l1=0.2)
    list(_steps(method, 10))
    (wiring,) = wb.wirings(model)
    assert wiring.nbytes == before + wiring.budget


def test_another_method_takes_the_wiring_over():
    model = _model()
    first = wb.ConstantRate(model, torch.optim.SGD(model.parameters(), lr=0.2), rate=0.0, l1=0.2)
    list(_steps(first, 10))
    (wiring,) = wb.wirings(model)
    assert wiring.active < wiring.budget
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert [info.active for info in _steps(method, 2)] == [wiring.budget] * 2
    F.mse_loss(model(X), TARGET).backward()
    with pytest.raises(RuntimeError, match="a later DeepR has taken over"):
        first.step()


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_wrong_rates(rate):
    with pytest.raises(ValueError, match=r"rate \(=.*\) must be in \[0, 1\]"):
        wb.ConstantRate(model := _model(), torch.optim.SGD(model.parameters(), lr=0.1), rate=rate)
    method = wb.ConstantRate(model := _model(), torch.optim.SGD(model.parameters(), lr=0.1), l1=1.0, rate=lambda s, lr: rate)
    with pytest.raises(ValueError, match="rate"):
        list(_steps(method, 5))


def test_file_with_a_heavy_empty_place_is_refused(tmp_path):
    method = wb.ConstantRate(model := _model(), torch.optim.SGD(model.parameters(), lr=0.2), rate=0.0, l1=0.2)
    list(_steps(method, 10))
    state = model.state_dict()
    wb.save(tmp_path / "good", method=method)
    key = next(name for name in state if name.endswith("alive"))
    state[key].fill_(False)
    with pytest.raises(wb.WiringError, match="empty place"):
        wb.save(tmp_path / "bad", method=method)
    other = wb.ConstantRate(model := _model(), torch.optim.SGD(model.parameters(), lr=0.2))
    wb.load(tmp_path / "good", method=other)
    assert other.layer_active() != [sum(w.budget for w in wb.wirings(model))]
