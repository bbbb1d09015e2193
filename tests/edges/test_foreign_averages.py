"""Averages of others mix connections once one has moved: they are found out at the next use, and nobody else is bothered."""

import copy
import gc
import io
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import wirebound as wb
from wirebound import WiringError

FOUND = "Use wb.WeightAverage"


@pytest.fixture
def nobody_else_lives():
    """What loads a state becomes a copy of a living wiring that holds just this; those of earlier tests may wait for the collector."""
    gc.collect()


def method_of(model, kind="deep-r"):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if kind == "set":
        return wb.SET(model, optimizer, every=2)
    return wb.Fixed(model, optimizer) if kind == "fixed" else wb.DeepR(model, optimizer, l1=1e-3, temperature=1e-4)


def train(rewiring, x, y, steps=1):
    for _ in range(steps):
        rewiring.zero_grad()
        F.cross_entropy(rewiring.model(x), y).backward()
        rewiring.step()


def evaluate(model, x):
    with torch.no_grad():
        return model.eval()(x)


def polyak(target, model, tau=0.1):
    for mine, theirs in zip(target.parameters(), model.parameters(), strict=True):
        mine.data.mul_(1 - tau).add_(tau * theirs.data)


def lerp_floats_and_copy_the_rest(average, model, decay=0.9):
    """What EMA classes of image libraries do with the values of a state dict."""
    with torch.no_grad():
        for mine, theirs in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
            if mine.is_floating_point():
                mine.lerp_(theirs, 1 - decay)
            else:
                mine.copy_(theirs)


AVERAGES = {
    "swa": lambda model: AveragedModel(model),
    "swa with buffers": lambda model: AveragedModel(model, use_buffers=True),
    "ema": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)),
    "ema with buffers": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True),
    "polyak": copy.deepcopy,
    "state dict": copy.deepcopy,
}


def update(name, average, model):
    if name == "polyak":
        polyak(average, model)
    elif name == "state dict":
        lerp_floats_and_copy_the_rest(average, model)
    else:
        average.update_parameters(model)


@pytest.mark.parametrize("kind", ["deep-r", "set"])
@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_over_other_connections(model, x, y, name, kind):
    rewiring = method_of(model, kind)
    average = AVERAGES[name](model)
    evaluate(average, x)
    for _ in range(4):
        train(rewiring, x, y)
        update(name, average, model)
    with pytest.raises(WiringError, match=FOUND):
        evaluate(average, x)
    with pytest.raises(WiringError, match=FOUND):  # and again: what it holds has not become right
        average(x)
    with pytest.raises(WiringError, match=FOUND):
        wb.wirings(average)[0].check()
    with pytest.raises(WiringError, match=FOUND):
        wb.to_dense(average)
    train(rewiring, x, y)  # the model itself trains on


@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_while_connections_stay(model, x, y, name):
    rewiring = method_of(model, "fixed")
    average = AVERAGES[name](model)
    for _ in range(4):
        train(rewiring, x, y)
        update(name, average, model)
        if name == "ema with buffers":  # 0.9 r + 0.1 r is not always the whole number r
            continue
        evaluate(model, x)
        torch.testing.assert_close(evaluate(average, x), wb.to_dense(average)(x))


def test_whole_numbers_that_were_averaged_although_they_stay(model, x, y):
    rewiring = method_of(model, "fixed")
    average = AVERAGES["ema with buffers"](model)
    for _ in range(3):
        train(rewiring, x, y)
        average.update_parameters(model)
    with pytest.raises(WiringError, match="use_buffers=True"):
        evaluate(average, x)


def test_the_first_update_is_a_plain_copy(model, x, y):
    rewiring = method_of(model)
    average = AveragedModel(model)
    train(rewiring, x, y, steps=3)
    average.update_parameters(model)
    torch.testing.assert_close(evaluate(average, x), evaluate(model, x))


def test_an_update_that_is_not_evaluated_at_once(model, x, y):
    """Positions are then those of no wiring any more."""
    rewiring = method_of(model)
    average = AveragedModel(model)
    for _ in range(3):
        train(rewiring, x, y)
        average.update_parameters(model)
    train(rewiring, x, y, steps=3)
    with pytest.raises(WiringError, match=FOUND):
        evaluate(average, x)


@pytest.mark.usefixtures("nobody_else_lives")
def test_going_on_after_the_error(model, x, y):
    rewiring = method_of(model)
    target = copy.deepcopy(model)
    train(rewiring, x, y, steps=3)
    polyak(target, model)
    with pytest.raises(WiringError, match=FOUND):
        evaluate(target, x)
    target.load_state_dict(model.state_dict())
    torch.testing.assert_close(evaluate(target, x), evaluate(model, x))
    train(rewiring, x, y, steps=3)
    evaluate(target, x)
    polyak(target, model)  # a target network that began with load_state_dict is watched too
    with pytest.raises(WiringError, match=FOUND):
        evaluate(target, x)
    target.load_state_dict(target.state_dict())  # "I know what I did"
    evaluate(target, x)


@pytest.mark.usefixtures("nobody_else_lives")
def test_a_target_that_was_built_beside_the_model(x, y):
    """As reinforcement-learning libraries do: two models, one state dict, then Polyak updates."""
    model, target = (wb.sparsify(torch.nn.Sequential(torch.nn.Linear(20, 50)), connectivity=0.2) for _ in range(2))
    target.load_state_dict(model.state_dict())
    rewiring = method_of(model)
    train(rewiring, x, y, steps=3)
    polyak(target, model)
    with pytest.raises(WiringError, match=FOUND):
        evaluate(target, x)


def test_an_average_that_is_given_to_the_model(model, x, y):
    rewiring = method_of(model)
    average = copy.deepcopy(model)
    train(rewiring, x, y, steps=3)
    polyak(average, model)
    for mine, theirs in zip(model.parameters(), average.parameters(), strict=True):
        mine.detach().copy_(theirs)
    with pytest.raises(WiringError, match=FOUND):
        evaluate(model, x)


def test_an_average_that_is_loaded_or_copied(model, x, y):
    rewiring = method_of(model)
    average = AveragedModel(model)
    for _ in range(3):
        train(rewiring, x, y)
        average.update_parameters(model)
    (wiring,) = wb.wirings(model)
    before = wiring.theta.detach().clone()
    with pytest.raises(RuntimeError, match=FOUND):
        model.load_state_dict(average.module.state_dict())
    assert torch.equal(wiring.theta, before)
    with pytest.raises(WiringError, match=FOUND):
        evaluate(copy.deepcopy(average.module), x)


# What must stay silent


def pickled(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("kind", ["deep-r", "set", "fixed"])
def test_copies_that_are_evaluated_moved_and_trained(model, x, y, copied, kind):
    rewiring = method_of(model, kind)
    kept = copied(model)
    expected = evaluate(kept, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(rewiring, x, y, steps=4)
        assert torch.equal(evaluate(kept, x), expected)
        evaluate(model, x)
        torch.testing.assert_close(evaluate(kept.double(), x.double()).float(), expected)
        kept.float()
        own = method_of(kept)  # trained on its own, while the original goes on
        for _ in range(3):
            train(own, x, y)
            train(rewiring, x, y)
            evaluate(kept, x)
            evaluate(model, x)
        wb.wirings(kept)[0].check()


def test_a_copy_that_is_tuned_by_an_optimiser_of_torch(model, x, y):
    rewiring = method_of(model)
    kept = copy.deepcopy(model)
    optimizer = torch.optim.SGD(kept.parameters(), lr=1e-6)
    for _ in range(4):
        train(rewiring, x, y)
        optimizer.zero_grad()
        F.cross_entropy(kept(x), y).backward()
        optimizer.step()
        evaluate(kept, x)


def test_states_that_are_loaded_from_one_model_into_another(model, x, y):
    rewiring = method_of(model)
    target, best = copy.deepcopy(model), None
    for _ in range(4):
        train(rewiring, x, y)
        target.load_state_dict(model.state_dict())
        torch.testing.assert_close(evaluate(target, x), evaluate(model, x))
        best = {name: value.clone() for name, value in model.state_dict().items()}
    train(rewiring, x, y)
    model.load_state_dict(best)
    torch.testing.assert_close(evaluate(model, x), evaluate(target, x))
    train(rewiring, x, y, steps=2)
    evaluate(target, x)


def test_a_copy_whose_original_is_gone(model, x, y):
    kept = copy.deepcopy(model)
    rewiring = method_of(model)
    train(rewiring, x, y, steps=2)
    state = {id(p): p.detach().clone() for p in model.parameters()}
    del rewiring
    wb.wirings(kept)[0].kinship.of = lambda: None  # as where the last reference was dropped; fixtures hold this one
    with torch.no_grad():
        for mine, theirs in zip(kept.parameters(), state.values(), strict=True):
            mine.copy_(theirs)
    evaluate(kept, x)


def test_the_statistics_of_a_copy_may_be_taken_anew(x, y):
    net = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 5))
    model = wb.sparsify(net, connectivity=0.2)
    rewiring = method_of(model)
    train(rewiring, x, y, steps=3)
    kept = copy.deepcopy(model)
    train(rewiring, x, y, steps=3)
    update_bn([x], kept)
    evaluate(kept, x)


@pytest.mark.slow
def test_ema_pytorch(model, x, y):
    ema_pytorch = pytest.importorskip("ema_pytorch")
    rewiring = method_of(model)
    ema = ema_pytorch.EMA(model, beta=0.9, update_after_step=0, update_every=1)
    for _ in range(6):
        train(rewiring, x, y)
        ema.update()
    with pytest.raises(WiringError, match=FOUND):
        ema(x)
    assert "ema_pytorch" in sys.modules
