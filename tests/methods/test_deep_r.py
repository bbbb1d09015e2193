"""DEEP R: exactly K after every step, state that moves with its connection, rates of every form."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import wirebound as wb
from wirebound.methods.deep_r import algorithm_1

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.02),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.02, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.02),
}


def _model(scope="global", connectivity=0.2, seed=0, bias=True, **options):
    torch.manual_seed(seed)  # sparsify keeps torch's own biases
    model = nn.Sequential(nn.Linear(12, 16, bias=bias), nn.Tanh(), nn.Linear(16, 3, bias=bias))
    return wb.sparsify(model, connectivity=connectivity, scope=scope, seed=seed, **options)


def _task(seed=0, rows=64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 12, generator=generator)
    return x, (x[:, :3] + 0.5 * x[:, 3:6]).argmax(1)


def _loss(model, x, y):
    return F.cross_entropy(model(x), y)


@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_budget_is_kept_at_every_step_with_every_optimiser(implementation, name, scope):
    model = _model(scope)
    optimizer = OPTIMIZERS[name](model.parameters())
    rewiring = wb.DeepR(model, optimizer, l1=0.02, temperature=1e-4)
    x, y = _task()
    budget = sum(w.budget for w in wb.wirings(model))
    first, rewired = _loss(model, x, y).item(), 0
    for step in range(1, 61):
        _loss(model, x, y).backward()
        info = rewiring.step()
        rewiring.zero_grad()
        for wiring in wb.wirings(model):
            wiring.check()
        assert (info.step, info.active, info.budget) == (step, budget, budget)
        assert sum(layer.active for layer in info.layers) == budget
        assert sum(layer.rewired for layer in info.layers) == info.rewired
        rewired += info.rewired
    assert rewired > 0
    assert _loss(model, x, y).item() < first


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_budget_is_kept_whatever_the_model(implementation, data):
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=2, max_size=4))
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes)))
    possible = sum(a * b for a, b in itertools.pairwise(sizes))
    budget = data.draw(st.integers(1, possible))
    model = wb.sparsify(
        model,
        budget=budget,
        scope=data.draw(st.sampled_from(["global", "layer"])),
        allocation=data.draw(st.sampled_from(["uniform", "erdos-renyi", "equal"])),
        seed=data.draw(st.integers(0, 1000)),
    )
    optimizer = OPTIMIZERS[data.draw(st.sampled_from(["sgd", "momentum", "adam", "rmsprop"]))](model.parameters())
    rewiring = wb.DeepR(
        model,
        optimizer,
        l1=data.draw(st.sampled_from([0.0, 0.1, 10.0])),
        temperature=data.draw(st.sampled_from([0.0, 0.01, 10.0])),
        newborns=data.draw(st.sampled_from(["uniform", "share"])),
        rewire_every=data.draw(st.integers(1, 3)),
    )
    for _ in range(8):
        model(torch.randn(4, sizes[0])).tanh().mean().backward()
        info = rewiring.step()
        rewiring.zero_grad()
        for wiring in wb.wirings(model):
            wiring.check()
        assert info.active == budget == sum(w.active for w in wb.wirings(model))


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam", "amsgrad", "adamw", "rmsprop"])
def test_optimiser_state_moves_with_its_connection(implementation, name):
    """After each step, a survivor's state is what torch makes of its own past, and a newborn's is clean."""
    model = _model()
    optimizer = OPTIMIZERS[name](model.parameters())
    rewiring = wb.DeepR(model, optimizer, l1=0.05, newborn_moments="own")
    (wiring,) = wb.wirings(model)
    x, y = _task()
    rewired = 0
    for _ in range(25):
        _loss(model, x, y).backward()
        twin = nn.Parameter(wiring.theta.detach().clone())
        twin.grad = wiring.theta.grad.clone()
        plain = OPTIMIZERS[name]([twin])
        for key, value in optimizer.state[wiring.theta].items():
            plain.state[twin][key] = value.clone() if isinstance(value, torch.Tensor) else value
        plain.step()
        before = wiring.positions().tolist()
        info = rewiring.step()
        rewiring.zero_grad()
        rewired += info.rewired
        newborn = (wiring.theta == 0).tolist()
        for key, value in optimizer.state[wiring.theta].items():
            if not isinstance(value, torch.Tensor) or not value.dim():
                continue
            expected = dict(zip(before, plain.state[twin][key].tolist(), strict=True))
            for k, position in enumerate(wiring.positions().tolist()):
                number = value[k].item()
                assert number == pytest.approx(0 if newborn[k] else expected[position], rel=1e-4, abs=1e-7)
    assert rewired > 20


def test_momentum_of_survivors_is_exactly_that_of_training_without_rewiring(implementation):
    """Fixed positions, same gradients: a survivor's buffer must not be mixed with anyone else's."""
    layer = wb.SparseLinear(30, 20, bias=False, budget=200, seed=4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0, momentum=0.9)
    rewiring = wb.DeepR(layer, optimizer, l1=0.0)
    wiring = layer.wiring
    expected: dict[int, float] = {}
    for step in range(12):
        wiring.theta.grad = torch.sin(wiring.positions().float() * (step + 1))
        grads = dict(zip(wiring.positions().tolist(), wiring.theta.grad.tolist(), strict=True))
        with torch.no_grad():
            wiring.theta[step::17] = -1.0  # lr 0: these die now
        survivors = set(wiring.positions()[wiring.theta >= 0].tolist())
        rewiring.step()
        moved = {p: 0.9 * expected.get(p, 0.0) + g for p, g in grads.items()}
        expected = {p: moved[p] if p in survivors else 0.0 for p in wiring.positions().tolist()}
        buffer = optimizer.state[wiring.theta]["momentum_buffer"]
        assert buffer.tolist() == pytest.approx(list(expected.values()), abs=1e-5)


def test_same_seed_same_run_other_seed_another(implementation):
    def run(seed):
        model = _model(seed=seed)
        rewiring = wb.DeepR(model, OPTIMIZERS["adam"](model.parameters()), l1=0.02, temperature=1e-4)
        x, y = _task()
        for _ in range(30):
            _loss(model, x, y).backward()
            rewiring.step()
            rewiring.zero_grad()
        return wb.wirings(model)[0]

    one, two, other = run(1), run(1), run(2)
    assert torch.equal(one.theta, two.theta)
    assert torch.equal(one.packed_rows, two.packed_rows)
    assert not torch.equal(one.packed_rows, other.packed_rows)


def test_state_round_trip_continues_bit_for_bit(implementation):
    def start():
        model = _model(seed=5)
        optimizer = OPTIMIZERS["adam"](model.parameters())
        return model, optimizer, wb.DeepR(model, optimizer, l1=0.02, temperature=1e-3)

    x, y = _task()

    def steps(model, rewiring, count):
        for _ in range(count):
            _loss(model, x, y).backward()
            rewiring.step()
            rewiring.zero_grad()

    model, optimizer, rewiring = start()
    steps(model, rewiring, 15)
    saved = [model.state_dict(), optimizer.state_dict(), rewiring.state_dict()]
    saved = [torch.utils._pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, s) for s in saved]
    steps(model, rewiring, 15)
    other, other_optimizer, other_rewiring = start()
    other.load_state_dict(saved[0])
    other_optimizer.load_state_dict(saved[1])
    other_rewiring.load_state_dict(saved[2])
    steps(other, other_rewiring, 15)
    assert torch.equal(wb.wirings(model)[0].packed_rows, wb.wirings(other)[0].packed_rows)
    assert torch.equal(wb.wirings(model)[0].theta, wb.wirings(other)[0].theta)


def test_rates_per_layer_and_schedules(implementation):
    asked = []

    def temperature(step, lr):
        asked.append((step, lr))
        return 0.0

    model = _model(bias=False)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    rewiring = wb.DeepR(model, optimizer, l1={"0": 0.0, "2": 1.0}, temperature=temperature)
    (wiring,) = wb.wirings(model)
    wiring.theta.grad = torch.zeros_like(wiring.theta)
    with torch.no_grad():
        wiring.theta.fill_(5.0)
    for _ in range(3):
        rewiring.step()
        scheduler.step()
    cut = wiring.bounds[1]
    assert wiring.theta[:cut].eq(5.0).all()
    assert torch.allclose(wiring.theta[cut:], torch.tensor(5.0 - 0.5 * (1 + 0.5 + 0.25)))
    assert asked[::2] == [(1, 0.5), (2, 0.25), (3, 0.125)]


def test_noise_amplitude_is_eta_g(implementation):
    model = _model(connectivity=1.0, bias=False)
    rewiring = wb.DeepR(
        model, torch.optim.SGD(model.parameters(), lr=0.5), l1=0.0, temperature=wb.schedule.noise_amplitude(0.02)
    )
    (wiring,) = wb.wirings(model)
    wiring.theta.grad = torch.zeros_like(wiring.theta)
    with torch.no_grad():
        wiring.theta.fill_(5.0)
    spread = []
    for _ in range(200):
        before = wiring.theta.detach().clone()
        rewiring.step()
        spread.append(wiring.theta.detach() - before)
    noise = torch.stack(spread)
    assert abs(noise.std() / 0.01 - 1) < 0.02
    assert abs(noise.mean()) < 4 * 0.01 / math.sqrt(noise.numel())


def test_rewire_every(implementation):
    model = _model(connectivity=0.5)
    rewiring = wb.DeepR(model, OPTIMIZERS["sgd"](model.parameters()), l1=0.3, rewire_every=5)
    x, y = _task()
    for step in range(1, 31):
        _loss(model, x, y).backward()
        info = rewiring.step()
        rewiring.zero_grad()
        assert step % 5 == 0 or info.rewired == 0
        for wiring in wb.wirings(model):
            wiring.check()


def test_learns_to_look_at_the_informative_inputs(implementation):
    """Six of 200 inputs matter: 3 % of the connections start there, most end there."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(512, 200, generator=generator)
    y = x[:, :6] @ torch.randn(6, 20, generator=generator)
    layer = wb.SparseLinear(200, 20, bias=False, budget=40, seed=1)
    rewiring = wb.DeepR(layer, torch.optim.SGD(layer.parameters(), lr=1.0), l1=0.04, temperature=0.0)
    started = int(layer.wiring.colptr[6])
    first = F.mse_loss(layer(x), y).item()
    for _ in range(500):
        F.mse_loss(layer(x), y).backward()
        rewiring.step()
        rewiring.zero_grad()
    assert started <= 4
    assert int(layer.wiring.colptr[6]) >= 20
    assert F.mse_loss(layer(x), y).item() < 0.6 * first


def test_wrong_input():
    model = _model()
    parameters = list(model.parameters())
    with pytest.raises(ValueError, match=r"optimizer \(=SGD\) lacks the parameter of the wiring over 0, 2"):
        wb.DeepR(model, torch.optim.SGD([p for p in parameters if p.dim() == 1 and p.numel() in (16, 3)], lr=0.1))
    with pytest.raises(ValueError, match="has no sparse layer"):
        plain = nn.Linear(2, 2)
        wb.DeepR(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    sgd = torch.optim.SGD(parameters, lr=0.1)
    for options, message in [
        ({"l1": -1.0}, r"l1 \(=-1.0\) must be"),
        ({"l1": math.nan}, r"l1 \(=nan\) must be"),
        ({"temperature": [0.0]}, "temperature has 1 values for 2 sparse layers"),
        ({"l1": {"0": 1.0}}, r"missing \['2'\]"),
        ({"rewire_every": 0}, r"rewire_every \(=0\)"),
        ({"newborns": "elsewhere"}, r"newborns \(='elsewhere'\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            wb.DeepR(model, sgd, **options)
    with pytest.raises(ValueError, match="LBFGS"):
        wb.DeepR(model, torch.optim.LBFGS(parameters))


def test_nan_gradient_is_an_error(implementation):
    model = _model()
    rewiring = wb.DeepR(model, OPTIMIZERS["sgd"](model.parameters()))
    (model(torch.full((1, 12), math.nan)).sum()).backward()
    with pytest.raises(FloatingPointError, match="step 1 was not taken"):
        rewiring.step()


@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf")])
def test_a_learning_rate_below_zero_is_named(implementation, lr):
    """A scheduler can bring one; the noise of a step takes the root of it."""
    model = wb.sparsify(nn.Linear(20, 5, bias=False), connectivity=0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rewiring = wb.DeepR(model, optimizer, l1=1e-3, temperature=1e-6)
    model(torch.ones(2, 20)).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer.param_groups[0]["lr"] = lr
    with pytest.raises(ValueError, match=rf"lr \(={lr}\) must be a finite number >= 0"):
        rewiring.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_schedules_check_what_they_are_made_of():
    with pytest.raises(ValueError, match=r"factor \(=-1\) must be a finite number > 0"):
        wb.schedule.exponential(1e-3, -1, 100)
    for make in (wb.schedule.linear, wb.schedule.cosine):
        with pytest.raises(ValueError, match=r"steps \(=0\) must be > 0"):
            make(1.0, 0.0, 0)


@pytest.mark.parametrize("newborns", ["uniform", "share"])
def test_algorithm_1_line_by_line_is_the_method(newborns):
    """The reference that can be read beside the paper, and the method with plain SGD: the same connections."""
    eta, alpha, temperature = 0.3, 0.05, 1e-4
    twins = [wb.sparsify(nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 4)), 0.3, seed=2) for _ in range(2)]
    twins[1].load_state_dict(twins[0].state_dict())
    (mine,), (read,) = (wb.wirings(twin) for twin in twins)
    optimizer = torch.optim.SGD(twins[0].parameters(), lr=eta)
    rewiring = wb.DeepR(twins[0], optimizer, l1=alpha, temperature=temperature, newborns=newborns)
    plain = torch.optim.SGD([p for p in twins[1].parameters() if p is not read.theta], lr=eta)
    x = torch.randn(20, 12, generator=torch.Generator().manual_seed(3))
    rewired = 0
    for step in range(1, 16):
        for twin in twins:
            F.cross_entropy(twin(x), x[:, :4].argmax(1)).backward()
        optimizer.step()
        plain.step()
        born = algorithm_1(read, eta, alpha, temperature, step, rewiring.shares[0])
        assert born == rewiring.info.layer_rewired
        assert torch.equal(mine.positions(), read.positions())
        torch.testing.assert_close(mine.theta, read.theta, atol=1e-6, rtol=1e-5)
        rewired += sum(born)
        for twin in twins:
            twin.zero_grad()
    assert rewired > 20
