"""RigL: what the watch costs and when it is on; the choice of candidates is tested in test_grow.py."""

import json
import subprocess
import sys

import pytest
import torch
from rival_helpers import OPTIMIZERS, small, steps, task
from torch import nn

import wirebound as wb
from wirebound.engine.modules import ModuleEngine
from wirebound_lab import data as datasets
from wirebound_lab.run import TrainConfig
from wirebound_lab.run.models import build_method, build_model, build_optimizer


def _watched(model):
    return [wiring.watch is not None for wiring in wb.wirings(model)]


def test_only_the_backward_pass_of_a_growing_step_is_watched():
    model = small("layer")
    method = wb.RigL(model, OPTIMIZERS["sgd"](model.parameters()), every=3, until=7)
    seen = []

    def each(info):
        seen.append(info.step + 1 if all(_watched(model)) else 0)
        assert len(set(_watched(model))) == 1
        assert all(not wiring.watch for wiring in wb.wirings(model))  # nothing of the last pass is held

    assert not any(_watched(model))
    steps(model, method, 9, each)
    assert [step for step in seen if step] == [3, 6]
    method.detach()
    method = wb.RigL(model, method.optimizer, every=1)
    assert all(_watched(model))
    method.detach()
    assert not any(_watched(model))
    wb.DeepR(model, method.optimizer)  # another method takes over: nothing may pile up
    assert not any(_watched(model))


def test_the_fraction_falls_along_a_cosine():
    model = small("layer")
    method = wb.RigL(model, OPTIMIZERS["sgd"](model.parameters()), fraction=0.47, every=2, until=8)
    rewired = []
    steps(model, method, 10, lambda info: rewired.append(info.layer_rewired))
    counts = [w.budget for w in wb.wirings(model)]
    for step, share in ((2, 0.47 * 0.8535534), (4, 0.235), (6, 0.47 * 0.1464466)):
        assert rewired[step - 1] == [round(share * n) for n in counts]
    assert sum(map(sum, rewired[6:])) == 0


def test_gradients_that_are_dropped_do_not_count():
    """A backward pass whose gradients are zeroed leaves nothing behind for growth either."""

    def run(extra):
        model = small()
        method = wb.RigL(model, OPTIMIZERS["sgd"](model.parameters()), every=1)
        if extra:
            model(100 * torch.randn(30, 12)).square().sum().backward()
            method.zero_grad()
        steps(model, method, 1)
        return wb.wirings(model)[0].positions()

    assert torch.equal(run(False), run(True))


def test_gradients_may_be_zeroed_between_forward_and_backward_also_of_masked_parameters():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(12, 4))
    model = wb.sparsify(plain, 0.3, include=["0", "2"])
    (wiring,) = wb.wirings(model)
    method = wb.RigL(model, OPTIMIZERS["sgd"](model.parameters()), every=1)
    for _ in range(3):
        loss = model(torch.randint(0, 9, (5, 2))).square().sum()
        method.zero_grad()
        loss.backward()
        info = method.step()
        wiring.check()
        assert all(n > 0 for n in info.layer_rewired)


def test_a_gradient_from_elsewhere_is_an_error():
    """Without a watched backward pass nothing is known of dormant connections; growing at random would hide that."""
    model = small()
    method = wb.RigL(model, OPTIMIZERS["sgd"](model.parameters()), every=1)
    for wiring in wb.wirings(model):
        wiring.theta.grad = torch.ones_like(wiring.theta)
    with pytest.raises(RuntimeError, match="backward pass of step 1 must leave the gradient of dormant connections of 0, 2"):
        method.step()


def test_a_wiring_outside_of_the_loss_is_left_alone():
    model = small("layer")
    method = wb.RigL(model, OPTIMIZERS["sgd"](model.parameters()), every=1)
    first, *others = wb.wirings(model)
    before = [w.positions() for w in others]
    model[0](task()[0]).square().sum().backward()
    info = method.step()
    assert info.layer_rewired[0] > 0
    assert info.layer_rewired[1:] == [0, 0]
    assert all(torch.equal(a, w.positions()) for a, w in zip(before, others, strict=True))
    first.check()


def test_a_step_that_is_left_out_moves_the_watch_on():
    config = TrainConfig(data="digits", method="rigl", connectivity=0.1, hidden=[20], replace_every=3)
    data = datasets.load("digits")
    x = data.inputs("train", flatten=True).clone()
    x[25] = torch.nan  # in the third step, which would have grown
    model = build_model(config, x.shape[1], data.classes)
    method = build_method(config, model, build_optimizer(config, model))
    engine = ModuleEngine(model, method, x, data.train_y)
    engine.on_nan = "skip"
    windows = list(engine.epoch(torch.arange(60), [0.5] * 6, 10, 1))
    assert [sum(w.newborns) > 0 for w in windows] == [False, False, False, False, False, True]
    assert not any(_watched(model))


SCRIPT = """
import json, torch, wirebound as wb
from wirebound_lab.bench.fresh_process import Peak
n = 20_000
makes = {
    "births": lambda m, o: wb.DeepR(m, o, l1=0.05, births="gradient", rewire_every=2),
    "gse": lambda m, o: wb.GSE(m, o, every=2),
    "rigl": lambda m, o: wb.RigL(m, o, every=2),
}
measured = {}
for name, make in makes.items():  # those that need least come first: the peak is that of all so far
    layer = wb.SparseLinear(n, n, bias=False, budget=n)
    method = make(layer, torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9))
    measured[name] = []
    for _ in range(2):
        x = torch.randn(4, n)
        layer(x).square().mean().backward()
        info = method.step()
        method.zero_grad()
        layer.wiring.check()
        measured[name].append([info.active, info.rewired, Peak().read()])
print(json.dumps(measured))
"""


def test_a_large_layer_never_has_a_dense_gradient():
    """20,000 × 20,000: the dense gradient alone would be 1.6 GB; RigL adds a few blocks of 4 MB, growth among as many
    candidates as connections a few arrays of 160 kB."""
    outcome = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    measured = json.loads(outcome.stdout)
    for name, most in (("births", 20e6), ("gse", 20e6), ("rigl", 100e6)):
        (active, rewired, before), (active_then, rewired_then, peak) = measured[name]
        assert (active, active_then, rewired) == (20_000, 20_000, 0)
        assert rewired_then == 6_000 if name != "births" else rewired_then > 100
        assert peak - before < most, (name, before, peak)
        assert peak < 600e6


def test_an_interrupt_while_wirings_are_told_to_watch_is_made_good():
    model = wb.sparsify(nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 4)), connectivity=0.5, scope="layer")
    rigl = wb.RigL(model, torch.optim.SGD(model.parameters(), lr=0.1), every=1)
    wb.wirings(model)[1].watch = None  # as if Ctrl-C had come after the first
    rigl.zero_grad()
    model(torch.randn(5, 12)).square().sum().backward()
    assert rigl.step().rewired > 0
