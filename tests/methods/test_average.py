"""``WeightAverage``: an average that moves with its connections, with every method and optimiser."""

import copy

import method_table as table
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.checkpoint.training_state import check_optimizer_state

OPTIMIZERS = {
    **table.OPTIMIZERS,
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
}


def take_steps(method, average, count):
    for _ in range(count):
        table.take_steps(method, 1)
        average.update()


@pytest.mark.parametrize("decay", [0.9, None], ids=["moving", "mean"])
def test_averages_move_with_their_connections(decay):
    model = wb.sparsify(nn.Linear(30, 20), 0.2, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    method = wb.DeepR(model, optimizer, l1=0.05, temperature=1e-3)
    average = wb.WeightAverage(method, decay)
    (wiring,) = wb.wirings(model)
    expected: dict[int, float] = {}
    born = 0
    for step in range(1, 40):
        x = torch.randn(16, 30, generator=torch.Generator().manual_seed(step))
        model(x).square().mean().backward()
        born += method.step().rewired
        method.zero_grad()
        here = dict(zip(wiring.positions().tolist(), wiring.theta.detach().tolist(), strict=True))
        # A connection that died and was drawn again in the same step has started anew: θ = 0.
        old = {p: (expected[p] if p in expected and v != 0 else 0.0) for p, v in here.items()}
        keep = 0 if step == 1 else (step - 1) / step if decay is None else min(decay, (1 + step) / (10 + step))
        expected = {p: keep * old[p] + (1 - keep) * v for p, v in here.items()}
        average.update()
        held = optimizer.state[wiring.theta]["average"].tolist()
        assert held == pytest.approx(list(expected.values()), abs=1e-6)
    assert born > 100
    assert average.updates == 39
    before = wiring.theta.detach().clone()
    with average.in_use():
        assert wiring.theta.tolist() == pytest.approx(list(expected.values()), abs=1e-6)
    assert torch.equal(wiring.theta, before)


def test_connections_that_are_off_stay_off():
    model = nn.Linear(8, 6)
    method = wb.L1Shrinkage(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.3)
    average = wb.WeightAverage(method)
    for _ in range(3):
        average.update()
        model(torch.ones(2, 8)).square().mean().backward()
        method.step()
        method.zero_grad()
    off = model.weight == 0
    assert 0 < off.sum() < off.numel()
    with average.in_use():
        assert torch.equal(model.weight == 0, off)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", table.NAMES)
def test_every_method_and_optimiser(name, optimizer, monkeypatch):
    monkeypatch.setattr(table, "OPTIMIZERS", OPTIMIZERS)
    method, plain = (table.build(name, optimizer=optimizer) for _ in range(2))
    average = wb.WeightAverage(method, decay=0.8)
    average.update()  # before the first step there is nothing, and nothing is in the way of the optimiser
    with average.in_use():
        method.model(table.X)
    take_steps(method, average, 12)
    table.take_steps(plain, 12)
    for mine, theirs in zip(method.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)  # training does not notice
    averaged = average.model()
    for mine, theirs in zip(wb.wirings(averaged), wb.wirings(method.model), strict=True):
        mine.check()
        assert torch.equal(mine.positions(), theirs.positions())
        assert mine.active == theirs.active
    with average.in_use():
        assert torch.equal(method.model(table.X), averaged(table.X))
    assert not torch.equal(method.model(table.X), averaged(table.X))
    assert all(parameter.grad is None for parameter in averaged.parameters())
    take_steps(method, average, 3)
    averaged(table.X)


@pytest.mark.parametrize("name", ["deep-r", "set", "constant-rate"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "nadam"])
def test_a_checkpoint_holds_it(tmp_path, name, optimizer, monkeypatch):
    monkeypatch.setattr(table, "OPTIMIZERS", OPTIMIZERS)
    method = table.build(name, optimizer=optimizer)
    average = wb.WeightAverage(method, decay=None)
    take_steps(method, average, 5)
    wb.save(tmp_path / "half.safetensors", method=method)
    take_steps(method, average, 5)
    again = table.build(name, optimizer=optimizer, seed=1)
    wb.load(tmp_path / "half.safetensors", method=again)
    later = wb.WeightAverage(again, decay=None)
    assert later.updates == 5
    take_steps(again, later, 5)
    table.assert_same(method, again)
    assert torch.equal(average.model()(table.X), later.model()(table.X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.update(average_updates=0), "average_updates"),
        (lambda state: state.update(average_updates=2.5), "average_updates"),
        (lambda state: state.pop("average_updates"), "average_updates"),
        (lambda state: state.pop("average"), "average"),
        (lambda state: state.update(average=torch.zeros(3)), "average"),
        (lambda state: state["average"].fill_(torch.nan), "average"),
    ],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_checkpoint_that_lies_about_it(change, message, optimizer):
    method = table.build("deep-r", optimizer=optimizer)
    take_steps(method, wb.WeightAverage(method), 3)
    state = copy.deepcopy(method.optimizer.state_dict())
    change(state["state"][0])
    with pytest.raises(wb.CheckpointError, match=message):
        check_optimizer_state(state, method.optimizer)


@pytest.mark.filterwarnings("ignore:biases of .* are frozen")
def test_a_parameter_that_is_trained_later():
    """Adam makes the state of a parameter in its first step, and must find nothing there before."""
    model = wb.sparsify(nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)), connectivity=0.4)
    model[2].bias.requires_grad_(False)
    method = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.01))
    average = wb.WeightAverage(method)
    take_steps(method, average, 3)
    model[2].bias.requires_grad_(True)
    take_steps(method, average, 3)
    assert "average" in method.optimizer.state[model[2].bias]


def test_the_model_may_be_converted():
    method = table.build("deep-r", optimizer="sgd")
    average = wb.WeightAverage(method)
    take_steps(method, average, 3)
    method.model.double()
    for _ in range(3):
        F.cross_entropy(method.model(table.X.double()), table.Y).backward()
        method.step()
        method.zero_grad()
        average.update()
    assert average.model()(table.X.double()).dtype is torch.float64


def test_an_error_inside_leaves_the_weights_as_they_were():
    method = table.build("deep-r")
    average = wb.WeightAverage(method, decay=0.5)
    take_steps(method, average, 4)
    before = copy.deepcopy(method.model.state_dict())
    with pytest.raises(ZeroDivisionError), average.in_use(), average.in_use():
        raise ZeroDivisionError
    assert all(torch.equal(value, before[name]) for name, value in method.model.state_dict().items())
    with average.in_use(), pytest.raises(RuntimeError, match="while the average is in use"):
        average.update()
    average.update()


def test_a_backward_pass_through_weights_that_are_gone_is_refused():
    method = table.build("deep-r")
    average = wb.WeightAverage(method)
    take_steps(method, average, 2)
    with average.in_use():
        y = method.model(table.X)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("decay", [-0.1, 1, 1.5, float("nan")])
def test_a_decay_outside(decay):
    with pytest.raises(ValueError, match="decay"):
        wb.WeightAverage(table.build("deep-r"), decay)
