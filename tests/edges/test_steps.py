"""Steps that count rightly, fail as a whole, and do not disturb each other."""

import copy
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb

X = torch.randn(32, 20, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 5, (32,), generator=torch.Generator().manual_seed(2))


def _snapshot(model, optimizer, rewiring):
    state = [*model.parameters(), *model.buffers()]
    state += [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [t.detach().clone() for t in state], copy.deepcopy(rewiring.state_dict()["steps"])


def _backward(model):
    F.cross_entropy(model(X), Y).backward()


METHODS = {
    "deep-r": lambda m, o: wb.DeepR(m, o, l1=1e-2),
    "constant-rate": lambda m, o: wb.ConstantRate(m, o, l1=1e-2, rate=0.01),
    "fixed": wb.Fixed,
    "set": lambda m, o: wb.SET(m, o),
    "rigl": lambda m, o: wb.RigL(m, o),
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", METHODS)
def test_a_gradient_that_is_not_finite_leaves_everything_as_it_was(model, method, optimizer, bad, implementation):
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    rewiring = METHODS[method](model, optimizer)
    for _ in range(3):
        rewiring.zero_grad()
        _backward(model)
        rewiring.step()
    rewiring.zero_grad()
    _backward(model)
    wb.wirings(model)[0].theta.grad[3] = bad
    before = _snapshot(model, optimizer, rewiring)
    with pytest.raises(FloatingPointError, match="step 4 was not taken"):
        rewiring.step()
    after = _snapshot(model, optimizer, rewiring)
    assert all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
    assert before[1] == after[1] == 3
    rewiring.zero_grad()  # and training goes on
    _backward(model)
    rewiring.step()
    wb.wirings(model)[0].check()


@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf")])
@pytest.mark.parametrize("method", ["deep-r", "constant-rate", "set"])
def test_a_learning_rate_that_is_none_leaves_everything_as_it_was(model, method, lr):
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    rewiring = METHODS[method](model, optimizer)
    _backward(model)
    rewiring.step()
    _backward(model)
    for group in optimizer.param_groups:
        group["lr"] = lr
    before = _snapshot(model, optimizer, rewiring)
    with pytest.raises(ValueError, match=r"lr \(=.*must be a finite number >= 0"):
        rewiring.step()
    after = _snapshot(model, optimizer, rewiring)
    assert all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
    assert before[1] == after[1] == 1


def test_active_is_counted_not_assumed(model, implementation):
    rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=1e-3)
    (wiring,) = wb.wirings(model)
    _backward(model)
    assert rewiring.step().active == wiring.budget
    with torch.no_grad():
        wiring.theta[:7] = -1.0
    assert wiring.active == wiring.budget - 7
    assert sum(wiring.layer_active) == wiring.budget - 7
    rewiring.zero_grad()  # without a gradient the method leaves the wiring alone, and says how many are left
    assert rewiring.step().active == wiring.budget - 7


def test_theta_below_zero_is_dormant_in_every_layer_and_said_once(model, x, implementation):
    (wiring,) = wb.wirings(model)
    expected = copy.deepcopy(model)
    with torch.no_grad():
        wb.wirings(expected)[0].theta[::3] = 0.0
        wiring.theta.data[::3] -= 5.0  # as old optimisers write it: torch does not count it
    with pytest.warns(RuntimeWarning, match=r"have θ < 0 and count as dormant"):
        y = model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        model(x)
    torch.testing.assert_close(y, expected(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(wb.to_dense(model)(x), expected(x), rtol=1e-4, atol=1e-5)
    y.sum().backward()
    assert not wiring.theta.grad[::3].any()
    expected(x).sum().backward()
    theirs = wb.wirings(expected)[0].theta.grad
    keep = torch.ones(wiring.budget, dtype=torch.bool)
    keep[::3] = False
    torch.testing.assert_close(wiring.theta.grad[keep], theirs[keep], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (wb.SparseConv2d(2, 3, 3, connectivity=0.9), torch.randn(2, 2, 6, 6)),
        lambda: (wb.SparseLSTM(6, 4, connectivity=0.9), torch.randn(5, 2, 6)),
        lambda: (wb.SparseGRU(6, 4, connectivity=0.9), torch.randn(5, 2, 6)),
        lambda: (wb.sparsify(nn.Embedding(9, 4), connectivity=0.9, include="*"), torch.arange(9)),
    ],
    ids=["conv", "lstm", "gru", "masked"],
)
def test_theta_below_zero_in_other_layers(make, implementation):
    layer, x = make()
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        wb.wirings(layer)[0].theta[::2] = -3.0
        wb.wirings(twin)[0].theta[::2] = 0.0
    with pytest.warns(RuntimeWarning, match="dormant"):
        mine = layer(x)
    right = twin(x)
    first = (mine[0], right[0]) if isinstance(mine, tuple) else (mine, right)
    torch.testing.assert_close(*first)
    first[0].sum().backward()
    assert not wb.wirings(layer)[0].theta.grad[::2].any()


def test_a_step_of_an_optimiser_without_the_method_is_noticed(model):
    wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=2.0))
    _backward(model)
    torch.optim.SGD(model.parameters(), lr=2.0).step()
    assert wb.wirings(model)[0].active < wb.wirings(model)[0].budget
    with pytest.warns(RuntimeWarning, match="optimizer.step"):
        model(X)


def _job(number):
    """A model and its method: all with the same rule, so that whoever shared it would be found out."""
    torch.manual_seed(number)
    limits = wb.Constraints(max_fan_in=20) if number % 4 == 0 else None
    layers = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5))
    model = wb.sparsify(layers, connectivity=0.2, seed=number, constraints=limits)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if number % 4 == 1:
        return wb.SET(model, optimizer)
    if number % 4 == 2:
        return wb.ConstantRate(model, optimizer, l1=1e-3, rate=1e-3)
    return wb.DeepR(model, optimizer, l1=1e-2, temperature=1e-6)


def _train(rewiring):
    for _ in range(40):
        rewiring.zero_grad()
        _backward(rewiring.model)
        info = rewiring.step()
        assert info.budget is None or info.active == info.budget
    (wiring,) = wb.wirings(rewiring.model)
    wiring.check()
    return wiring.theta.detach().clone(), wiring.packed_rows.clone()


def test_threads_that_train_different_models_do_not_disturb_each_other():
    """A struct that was filled by one thread and read by another changed 58 of 324 runs."""
    alone = [_train(_job(number)) for number in range(12)]
    jobs, together = [_job(number) for number in range(12)], {}

    def work(numbers):
        for number in numbers:
            together[number] = _train(jobs[number])

    threads = [threading.Thread(target=work, args=(range(start, 12, 4),)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, mine in enumerate(alone):
        assert torch.equal(mine[0], together[number][0])
        assert torch.equal(mine[1], together[number][1])


def _two_alike():
    """Two copies of a layer in which nothing is near its death."""
    model = wb.sparsify(nn.Linear(20, 5), connectivity=0.5)
    with torch.no_grad():
        model.wiring.theta += 1
    return [model, copy.deepcopy(model)]


def test_steps_without_a_gradient_are_no_age(implementation):
    """Adam's bias correction goes by how often a connection was moved, not by how often somebody called step()."""
    models = _two_alike()
    methods = [wb.DeepR(m, torch.optim.Adam(m.parameters(), lr=0.01), l1=0.0) for m in models]
    for step in range(30):
        for model, method, idle in zip(models, methods, (0, 9), strict=True):
            for _ in range(idle if step == 0 else 0):
                method.zero_grad()
                method.step()
            method.zero_grad()
            model(X).square().mean().backward()
            method.step()
    torch.testing.assert_close(models[0].wiring.theta, models[1].wiring.theta, rtol=1e-5, atol=1e-7)


def test_a_method_on_an_optimiser_that_was_used_before_goes_on_where_it_was(implementation):
    models = _two_alike()
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-4) for m in models]
    methods = [wb.DeepR(models[0], optimizers[0], l1=0.0), None]
    for step in range(40):
        if step == 20:
            methods[1] = wb.DeepR(models[1], optimizers[1], l1=0.0)
        for model, optimizer, method in zip(models, optimizers, methods, strict=True):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            (optimizer if method is None else method).step()
    torch.testing.assert_close(models[0].wiring.theta, models[1].wiring.theta, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop"])
def test_double_in_the_middle_of_training(optimizer, implementation):
    # Without biases: torch's own Adam does not take them over to another precision.
    layers = [nn.Linear(20, 40, bias=False), nn.ReLU(), nn.Linear(40, 5, bias=False)]
    model = wb.sparsify(nn.Sequential(*layers), connectivity=0.2)
    rewiring = wb.DeepR(model, OPTIMIZERS[optimizer](model.parameters()), l1=1e-3)
    _backward(model)
    rewiring.step()
    model.double()
    for _ in range(5):
        rewiring.zero_grad()
        F.cross_entropy(model(X.double()), Y).backward()
        info = rewiring.step()
        assert info.active == info.budget
    wb.wirings(model)[0].check()


def test_the_count_of_updates_goes_on_where_a_float32_stops():
    model = wb.sparsify(nn.Linear(20, 5), connectivity=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rewiring = wb.DeepR(model, optimizer, l1=1e-2, newborn_moments="own")
    model(X).square().mean().backward()
    rewiring.step()
    optimizer.state[model.wiring.theta]["step"].fill_(2.0**24)
    for _ in range(4):
        rewiring.step()
    born = rewiring.adapter.born[0]
    assert rewiring.adapter.updates == [2**24 + 3]
    assert int(born.max()) > 2**24  # newborns are told apart although torch's count stands still
