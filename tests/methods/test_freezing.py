"""Freezing layers of one budget, and rates of their own for them, under every method and optimiser."""

import copy
import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from method_table import OPTIMIZERS, TABLE, X, Y, build, take_steps
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.engine.stack import why_not_fused

SPARSE = [name for name, line in TABLE.items() if not line.plain]
MORE = {
    **OPTIMIZERS,
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "decayed": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, weight_decay=0.1, initial_accumulator_value=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
}


def _layers(model):
    return [layer for _, layer in wb.nn.sparse_layers(model)]


def _held(method, layer):
    """All that a step could change of a layer: its connections, its bias, and what the optimiser keeps of both."""
    wiring, index = layer.wiring, layer.wiring.layer_index(layer.layer_id)
    here = slice(index.start, index.end)
    held = [layer.dense_weight(), index.layer_packed_rows().clone(), wiring.theta.detach()[here].clone()]
    if wiring.alive is not None:
        held.append(wiring.alive[here].clone())
    held += [value[here].clone() for value in method.optimizer.state[wiring.theta].values() if _long(value, wiring)]
    if layer.bias is not None:
        held.append(layer.bias.detach().clone())
    return held


def _long(value, wiring):
    return isinstance(value, torch.Tensor) and value.shape == (wiring.budget,)


@pytest.mark.parametrize(("optimizer", "which"), [("sgd", 0), ("momentum", 1), ("adam", 0), ("rmsprop", 1)])
@pytest.mark.parametrize("name", [*SPARSE, "deep-r by share", "set everywhere", "rigl everywhere"])
def test_a_frozen_layer_stays_as_it_is(name, optimizer, which):
    name, _, way = name.partition(" ")
    settings = {"by share": {"newborns": "share"}, "everywhere": {"scope": "global"}}.get(way, {})
    method = build(name, optimizer=optimizer, **{key: value for key, value in settings.items() if key != "scope"})
    method.scope = settings.get("scope", "layer")
    take_steps(method, 3)
    layers = _layers(method.model)
    wb.freeze(layers[which])
    before, other = _held(method, layers[which]), layers[1 - which].dense_weight()
    for _ in range(8):
        (info,) = take_steps(method, 1)
        (wiring,) = wb.wirings(method.model)
        wiring.check()
        assert info.layer_rewired[which] == 0
        if TABLE[name].promise == "exactly":
            assert info.active == info.budget == wiring.budget
        assert all(torch.equal(a, b) for a, b in zip(before, _held(method, layers[which]), strict=True))
    assert not torch.equal(other, layers[1 - which].dense_weight())
    wb.unfreeze(layers[which])
    take_steps(method, 3)
    assert not torch.equal(before[0], layers[which].dense_weight())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "decayed", "rmsprop"])
@pytest.mark.parametrize("name", SPARSE)
def test_both_implementations_agree(name, optimizer):
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    runs = []
    for implementation in ("reference", "native"):
        with ops.use(implementation):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))
            model = wb.sparsify(model, connectivity=0.4)
            method = wb.methods.METHODS[name](model, MORE[optimizer](model.parameters()), **TABLE[name].lively)
            wb.set_rates(model[0], lr=0.5, weight_decay=2.0)
            wb.freeze(model[2])
            take_steps(method, 6)
        runs.append([layer.dense_weight() for layer in _layers(model)])
    for a, b in zip(*runs, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("optimizer", MORE)
@pytest.mark.parametrize("name", ["fixed", "set"])
def test_rates_are_those_of_a_group_of_its_own(name, optimizer):
    """Each layer as a parameter of its own, in a group with the layer's rates, takes the same steps."""
    method = build(name, optimizer=optimizer if optimizer in OPTIMIZERS else "sgd")
    method = type(method)(method.model, MORE[optimizer](method.model.parameters()))
    model, factors = method.model, [(0.1, 3.0), (2.0, 0.0)]
    layers, (wiring,) = _layers(model), wb.wirings(model)
    for layer, (lr, decay) in zip(layers, factors, strict=True):
        wb.set_rates(layer, lr=lr, weight_decay=decay)
    edges = list(itertools.pairwise(wiring.bounds))
    alone = [nn.Parameter(wiring.theta.detach()[a:b].clone()) for a, b in edges]
    twin = MORE[optimizer](alone)
    first = twin.param_groups.pop()
    for parameter, (lr, decay) in zip(alone, factors, strict=True):
        decayed = {"weight_decay": decay * first["weight_decay"]} if "weight_decay" in first else {}
        twin.param_groups.append({**first, "params": [parameter], "lr": lr * first["lr"], **decayed})
    if optimizer == "adagrad":
        twin.state.clear()
        for parameter in alone:
            twin.state[parameter] = {"step": torch.tensor(0.0), "sum": torch.full_like(parameter, 0.1)}
    for _ in range(4):
        F.cross_entropy(model(X), Y).backward()
        for parameter, (a, b) in zip(alone, edges, strict=True):
            parameter.grad = wiring.theta.grad[a:b].clone()
        method.step()
        twin.step()
        method.zero_grad()
    assert torch.allclose(wiring.theta.detach(), torch.cat([p.detach() for p in alone]), atol=1e-6)


def test_pull_and_noise_follow_the_rate_of_the_layer():
    model = wb.sparsify(nn.Sequential(nn.Linear(16, 12, bias=False), nn.Linear(12, 3, bias=False)), connectivity=0.5)
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.01, noise=0.0, rewire_every=1000)
    wb.set_rates(model[1], lr=0.5)
    (wiring,) = wb.wirings(model)
    before, bound = wiring.theta.detach().clone(), wiring.bounds[1]
    wiring.theta.grad = torch.zeros_like(wiring.theta)
    method.step()
    moved = (before - wiring.theta.detach())[before > 0.01]
    pulls = torch.where(torch.arange(wiring.budget) < bound, 0.001, 0.0005)[before > 0.01]
    assert torch.allclose(moved, pulls, atol=1e-7)
    wb.set_rates(model[1], lr=1.0)
    assert wiring.rates is None


def test_frozen_connections_do_not_age():
    """With a constant gradient each step of Adam is as long as lr, however long a layer has been frozen."""
    model = wb.sparsify(nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 2, bias=False)), connectivity=0.5)
    method = wb.SET(model, torch.optim.Adam(model.parameters(), lr=1e-3), every=10**6)
    (wiring,) = wb.wirings(model)

    def step():
        before = wiring.theta.detach().clone()
        wiring.theta.grad = torch.ones_like(wiring.theta)
        method.step()
        return before - wiring.theta.detach()

    step(), step()
    wb.freeze(model[1])
    for _ in range(20):
        step()
    wb.unfreeze(model[1])
    assert torch.allclose(step(), torch.full((wiring.budget,), 1e-3), rtol=1e-3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(16, 20), nn.BatchNorm1d(20), nn.Linear(20, 3)

    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x))))


def _net(method=wb.DeepR, **settings):
    torch.manual_seed(0)
    model = wb.sparsify(Net(), connectivity=0.3)
    return method(model, torch.optim.SGD(model.parameters(), lr=0.1), **settings)


@pytest.mark.parametrize("frozen", ["a", "b"])
def test_requires_grad_of_a_layer_is_about_that_layer(frozen):
    method = _net(l1=0.02)
    model = method.model
    still, moves = (model.a, model.b) if frozen == "a" else (model.b, model.a)
    assert still.requires_grad_(False) is still
    before, other = _held(method, still), _held(method, moves)
    F.cross_entropy(model(X), Y).backward()
    assert still.bias.grad is None
    index = still.wiring.layer_index(still.layer_id)
    assert not still.wiring.theta.grad[index.start : index.end].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.step()
    assert all(torch.equal(x, y) for x, y in zip(before, _held(method, still), strict=True))
    assert not torch.equal(other[0], moves.dense_weight())
    still.requires_grad_(True)
    assert still.wiring.rates is None
    assert still.bias.requires_grad


def test_freeze_all_then_train_the_head():
    method = _net(l1=0.02)
    model = method.model
    model.requires_grad_(False)
    model.b.requires_grad_(True)
    before, head = _held(method, model.a), model.b.dense_weight()
    take_steps(method, 3)
    assert all(torch.equal(x, y) for x, y in zip(before, _held(method, model.a), strict=True))
    assert not torch.equal(head, model.b.dense_weight())


def test_a_whole_model_is_frozen_and_trained_in_turns():
    method = _net(l1=0.02)
    take_steps(method, 2)
    for _ in range(3):
        before = {name: value.clone() for name, value in method.model.state_dict().items() if "norm" not in name}
        wb.freeze(method.model)
        assert not any(p.requires_grad for p in method.model.parameters())
        method.model(X)
        method.step()
        now = method.model.state_dict()
        assert all(torch.equal(value, now[name]) for name, value in before.items())
        wb.unfreeze(method.model)
        take_steps(method, 1)
        assert not torch.equal(before["a.wiring.theta"], method.model.a.wiring.theta)


def test_norms_and_other_parameters_of_a_module():
    method = _net()
    wb.freeze(nn.ModuleList([method.model.a, method.model.norm]))
    assert [name for name, p in method.model.named_parameters() if not p.requires_grad] == [
        "a.bias", "norm.weight", "norm.bias"
    ]
    assert method.model.a.wiring.layer_rates.frozen == (True, False)


def test_copies_have_it_and_files_do_not(tmp_path):
    method = _net(l1=0.02)
    wb.freeze(method.model.a)
    wb.set_rates(method.model.b, lr=0.5)
    twin = copy.deepcopy(method)
    assert twin.model.a.wiring.rates == method.model.a.wiring.rates
    take_steps(method, 3), take_steps(twin, 3)
    assert torch.equal(method.model.b.dense_weight(), twin.model.b.dense_weight())
    wb.save(tmp_path / "kept.safetensors", method=method)
    other = _net(l1=0.02)
    wb.load(tmp_path / "kept.safetensors", method=other)
    assert other.model.a.wiring.rates is None


def test_recurrent_layers_and_attention_freeze_as_one():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.attention = nn.LSTM(4, 8, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)
            self.readout = nn.Linear(8, 3)

        def forward(self, x):
            h = self.lstm(x.view(-1, 4, 4))[0]
            return self.readout(self.attention(h, h, h)[0][:, -1])

    model = wb.sparsify(Model(), connectivity=0.5)
    method = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.01), l1=0.02)
    for module in (model.lstm, model.attention):
        module.requires_grad_(False)
        before = {name: layer.dense_weight() for name, layer in wb.nn.sparse_layers(module)}
        take_steps(method, 3)
        for name, layer in wb.nn.sparse_layers(module):
            assert torch.equal(before[name], layer.dense_weight()), name
        module.requires_grad_(True)
    take_steps(method, 1)


@pytest.mark.parametrize("newborns", ["uniform", "share"])
def test_caps_hold_beside_a_frozen_layer(newborns):
    model = wb.sparsify(
        nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)),
        connectivity=0.3, constraints=wb.Constraints(max_fan_in=8, max_fan_out=6),
    )
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.05, newborns=newborns)
    wb.freeze(model[2])
    before = model[2].dense_weight()
    assert sum(info.rewired for info in take_steps(method, 8)) > 0
    wb.wirings(model)[0].check()
    assert torch.equal(before, model[2].dense_weight())


def test_newborns_are_uniform_over_the_open_layers():
    """Nobody in the frozen layer, and in the others as many as they have dormant places."""
    layers = [nn.Linear(20, 10, bias=False), nn.Linear(10, 30, bias=False), nn.Linear(30, 20, bias=False)]
    model = wb.sparsify(nn.Sequential(*layers), connectivity=0.2)
    wb.freeze(model[1])
    (wiring,) = wb.wirings(model)
    survivors = wiring.positions()
    counts = torch.zeros(3)
    for step in range(200):
        dead = survivors[torch.arange(0, wiring.bounds[1], 5)]
        alive = survivors[~torch.isin(survivors, dead)]
        drawn = wb.wiring.draw_newborns(wiring, alive, dead, step)
        assert not torch.isin(drawn, alive).any()
        counts += torch.tensor(wb.wiring.draw.per_layer(wiring.geometry, drawn))
    room = [200 - wiring.layer_places[0] + dead.numel(), 0, 600 - wiring.layer_places[2]]
    assert counts[1] == 0
    assert abs(counts[0] / counts.sum() - room[0] / sum(room)) < 0.04


def test_a_grow_rule_may_not_put_newborns_into_a_frozen_layer():
    method = _net(wb.SET, every=1)
    wb.freeze(method.model.a)
    wiring = method.model.a.wiring
    dormant = next(p for p in range(16 * 20) if p not in set(wiring.positions().tolist()))
    dead = torch.tensor([wiring.budget - 1])
    with pytest.raises(ValueError, match=r"newborns \(=1\) must not be in layer 'a', which is frozen"):
        wiring.replace_(dead, torch.tensor([dormant]), [])


def test_fused_training_refuses_it():
    model = wb.sparsify(nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)), connectivity=0.4)
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert why_not_fused(model, method) in ("", "the native kernels are not in use")
    wb.freeze(model[2])
    if ops.native_available():
        assert "frozen" in why_not_fused(model, method)


def test_wrong_arguments():
    model = wb.sparsify(Net(), connectivity=0.3)
    with pytest.raises(ValueError, match=r"lr \(=-1\) must be a finite factor"):
        wb.set_rates(model, lr=-1)
    with pytest.raises(ValueError, match=r"weight_decay \(=nan\)"):
        wb.set_rates(model, weight_decay=float("nan"))
    with pytest.raises(ValueError, match="has no sparse layer"):
        wb.set_rates(model.norm, lr=0.1)
    with pytest.raises(TypeError, match="freeze takes a module, not Parameter"):
        wb.freeze(model.a.bias)
