"""The fused path against the module path: the same training, step by step.

How they are compared: both take the same steps from the same seed on real data. Each sum is rounded in another order,
so numbers agree up to float32 rounding, which grows slowly as steps feed on each other; after a few dozen steps the
wiring must still be the same connection for connection, and every tensor within the tolerances below.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import DivergedError, ModuleEngine, data_order
from wirebound_lab import data

pytestmark = pytest.mark.skipif(not ops.native_available(), reason="the native kernels were not built")

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd-decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, dampening=0.3),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.003, eps=1e-4),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.003, eps=1e-4, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.003, eps=1e-4, weight_decay=0.05),
}


def _digits():
    digits = data.load("digits")
    return digits.inputs("train", flatten=True), digits.train_y


def _stack(activation=nn.ReLU, bias=True, head="sparse", seed=0, scope="global"):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(64, 40, bias=bias), activation(), nn.Linear(40, 30, bias=bias), activation(), nn.Linear(30, 10, bias=bias)
    )
    return wb.sparsify(
        model, connectivity=0.15, scope=scope, seed=seed, init="sparse-fan-in", exclude="4" if head == "dense" else ()
    )


def _both(make_method, make_optimizer, steps=60, batch=10, targets=None, loss=None, **stack):
    x, y = _digits()
    y = y if targets is None else targets(y)
    outcomes = []
    for engine in ("module", "fused"):
        model = _stack(**stack)
        optimizer = make_optimizer(model.parameters())
        method = make_method(model, optimizer)
        lr = optimizer.param_groups[0]["lr"]
        order = data_order(len(x), 1, 1)[: steps * batch - 3]  # the last batch is smaller
        lrs = [lr * 0.99**i for i in range(-(-len(order) // batch))]
        if engine == "fused":
            assert why_not_fused(model, method) == ""
            windows = list(FusedEngine(model, method, x, y).epoch(order, lrs, batch, 16))
        elif loss is None:
            windows = list(ModuleEngine(model, method, x, y).epoch(order, lrs, batch, 16))
        else:
            windows = []
            for number, part in enumerate(order.split(batch)):
                for group in optimizer.param_groups:
                    group["lr"] = lrs[number]
                loss(model(x[part]), y[part]).backward()
                method.step()
                method.zero_grad()
        outcomes.append((model, optimizer, method, windows))
    return outcomes


def _assert_same(outcomes, tolerance=2e-3):
    (one, one_optimizer, one_method, one_windows), (two, two_optimizer, two_method, two_windows) = outcomes
    assert one_method.steps == two_method.steps
    for a, b in zip(wb.wirings(one), wb.wirings(two), strict=True):
        b.check()
        assert torch.equal(a.packed_rows, b.packed_rows)
        assert torch.equal(a.colptr, b.colptr)
    for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=tolerance, atol=tolerance * float(a.detach().abs().max())), name
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        mine, theirs = one_optimizer.state[a], two_optimizer.state[b]
        for key, value in mine.items():
            if isinstance(value, torch.Tensor):
                scale = float(value.abs().max())
                assert torch.allclose(value, theirs[key], rtol=tolerance, atol=tolerance * scale), key
    for a, b in zip(one_windows, two_windows, strict=bool(one_windows)):
        assert (a.step_from, a.step_to, a.newborns) == (b.step_from, b.step_to, b.newborns)
        assert a.loss == pytest.approx(b.loss, rel=1e-3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser(name):
    outcomes = _both(lambda m, o: wb.DeepR(m, o, l1=0.01, temperature=1e-6), OPTIMIZERS[name])
    _assert_same(outcomes)
    assert sum(sum(w.newborns) for w in outcomes[0][3]) > 0


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity])
@pytest.mark.parametrize("bias", [True, False])
def test_every_activation(activation, bias):
    _assert_same(_both(lambda m, o: wb.DeepR(m, o, l1=0.01), OPTIMIZERS["sgd"], activation=activation, bias=bias))


@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("newborns", ["uniform", "share"])
@pytest.mark.parametrize("rewire_every", [1, 3])
def test_scopes_and_readings(scope, newborns, rewire_every):
    def method(m, o):
        return wb.DeepR(m, o, l1=0.01, temperature=1e-6, newborns=newborns, rewire_every=rewire_every)

    _assert_same(_both(method, OPTIMIZERS["sgd"], scope=scope))


def test_schedules_and_rates_for_each_layer():
    def method(m, o):
        return wb.DeepR(m, o, l1=[0.0, 0.01, lambda step, lr: 1e-3 * step], temperature=wb.schedule.noise_amplitude(1e-3))

    _assert_same(_both(method, OPTIMIZERS["sgd"]))


@pytest.mark.parametrize("batch", [1, 7, 8, 33, 200])
def test_batch_sizes(batch):
    _assert_same(_both(lambda m, o: wb.DeepR(m, o, l1=0.01), OPTIMIZERS["sgd"], batch=batch, steps=max(4, 300 // batch)))


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("head", ["sparse", "dense"])
def test_fixed_and_dense_heads(name, head):
    _assert_same(_both(wb.Fixed, OPTIMIZERS[name], head=head))


@pytest.mark.parametrize("name", ["sgd", "nesterov", "adamw"])
def test_dense_models(name):
    x, y = _digits()
    outcomes = []
    for engine in (ModuleEngine, FusedEngine):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 40), nn.Tanh(), nn.Linear(40, 10))
        optimizer = OPTIMIZERS[name](model.parameters())
        method = wb.Dense(model, optimizer)
        lr = optimizer.param_groups[0]["lr"]
        windows = list(engine(model, method, x, y).epoch(data_order(len(x), 1, 1), [lr] * 144, 10, 50))
        outcomes.append((model, optimizer, method, windows))
    _assert_same(outcomes)


def test_mean_square():
    outcomes = _both(
        lambda m, o: wb.DeepR(m, o, l1=0.001),
        OPTIMIZERS["sgd"],
        targets=lambda y: F.one_hot(y, 10).float(),
        loss=F.mse_loss,
    )
    outcomes[0] = (*outcomes[0][:3], [])
    outcomes[1] = (*outcomes[1][:3], [])
    _assert_same(outcomes)


def test_bytes_are_the_scaled_floats():
    digits = data.load("digits")
    losses = []
    for x, scale in ((digits.train_x.flatten(1), 1 / 16), (digits.inputs("train", flatten=True), 1.0)):
        model = _stack()
        method = wb.DeepR(model, OPTIMIZERS["sgd"](model.parameters()))
        engine = FusedEngine(model, method, x, digits.train_y, scale=scale)
        losses.append([w.loss for w in engine.epoch(data_order(len(x), 1, 1), [0.1] * 144, 10, 144)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_training_can_change_paths_in_the_middle():
    """Module, then fused, then module again: the state is torch's own throughout."""
    x, y = _digits()
    models = []
    for plan in (["module"] * 3, ["module", "fused", "module"]):
        model = _stack()
        method = wb.DeepR(model, OPTIMIZERS["adam"](model.parameters()), l1=0.01)
        for part, kind in enumerate(plan):
            engine = {"module": ModuleEngine, "fused": FusedEngine}[kind](model, method, x, y)
            list(engine.epoch(data_order(len(x), 1, part)[:200], [0.003] * 20, 10, 20))
        models.append(model)
    assert torch.equal(wb.wirings(models[0])[0].packed_rows, wb.wirings(models[1])[0].packed_rows)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.allclose(a, b, rtol=2e-3, atol=1e-4)


def test_a_loss_that_is_not_finite_stops_before_the_step():
    x, y = _digits()
    model = _stack()
    method = wb.Fixed(model, OPTIMIZERS["sgd"](model.parameters()))
    x = x.clone()
    x[500] = float("nan")
    before = None
    engine = FusedEngine(model, method, x, y)
    list(engine.epoch(torch.arange(500), [0.1] * 50, 10, 50))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(DivergedError, match="step 51"):
        list(engine.epoch(torch.arange(500, 600), [0.1] * 10, 10, 10))
    assert method.steps == 50
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


def test_what_cannot_be_fused_is_said():
    model = _stack()
    method = wb.DeepR(model, torch.optim.RMSprop(model.parameters(), lr=0.1))
    assert "RMSprop" in why_not_fused(model, method)
    model = _stack()
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1))
    handle = model[1].register_forward_hook(lambda *a: None)
    assert "hooks" in why_not_fused(model, method)
    handle.remove()
    assert why_not_fused(model, method) == ""
    model[1] = nn.Dropout(0.5)
    assert "Dropout" in why_not_fused(model, method)
    with ops.use("reference"):
        assert "native" in why_not_fused(model, method)
    with pytest.raises(ValueError, match="labels must be"):
        good = _stack()
        FusedEngine(good, wb.DeepR(good, torch.optim.SGD(good.parameters(), lr=0.1)), *(_digits()[0], _digits()[1] + 5))


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_alpha_by_itself(name):
    """Both paths look after the same steps and come to the same α, and to the same start for newborns."""
    outcomes = _both(wb.DeepR, OPTIMIZERS[name], steps=110)
    _assert_same(outcomes, tolerance=1e-2)
    (_, _, one, _), (_, _, two, _) = outcomes
    assert one.turnover.prices[0].looked == two.turnover.prices[0].looked == 100
    assert one.turnover.prices[0].alpha == pytest.approx(two.turnover.prices[0].alpha, rel=1e-2)
    assert one.second_moments == pytest.approx(two.second_moments, rel=1e-2)


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_layers_with_rates_of_their_own(name):
    def make(model, optimizer):
        wb.set_rates(model[0], lr=0.5, weight_decay=2.0)
        wb.set_rates(model[4], lr=3.0)
        return wb.DeepR(model, optimizer, l1=0.01, temperature=1e-6)

    _assert_same(_both(make, OPTIMIZERS[name]))
