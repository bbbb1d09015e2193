"""An object that fails to take its state, for whatever reason: all objects get back what they had, and train on."""

import copy

import pytest
import torch
from checkpoint_helpers import METHODS, MORE_METHODS, X, Y, assert_same_state, build, rewrite, take_steps
from torch import nn
from torch.optim.lr_scheduler import StepLR

import wirebound as wb


@pytest.fixture
def fail(monkeypatch):
    """Let the next ``load_state_dict`` of a kind of part, or all of them, do its work and then fail."""

    def install(kind, error, *, always=False):
        original, failed = kind.load_state_dict, []

        def load(self, state):
            original(self, state)
            if always or not failed:
                failed.append(True)
                raise error

        monkeypatch.setattr(kind, "load_state_dict", load)

    return install


def _backward(made):
    nn.functional.cross_entropy(made[0].model(X), Y).backward()


@pytest.mark.parametrize("method", [*METHODS, *MORE_METHODS])
def test_the_last_object_fails(tmp_path, fail, method):
    """All others have taken their state by then. A gradient that waits for its step is not lost either."""
    other, made = build(method, "adam", seed=4), build(method, "adam", seed=1)
    take_steps(*other, 5)
    wb.save(tmp_path / "c", method=other[0], scheduler=other[1])
    take_steps(*made, 2)
    twin = copy.deepcopy(made)
    twin[0].steps = made[0].steps  # a copy of RigL watches the next backward pass only from here on
    generator = torch.get_rng_state()
    for each in (made, twin):
        _backward(each)
    fail(StepLR, KeyError("gone"))
    match = r"the scheduler did not take its state \(KeyError.*everything is as it was"
    with pytest.raises(wb.CheckpointError, match=match) as found:
        wb.load(tmp_path / "c", method=made[0], scheduler=made[1])
    assert isinstance(found.value.__cause__, KeyError)
    assert torch.equal(torch.get_rng_state(), generator)
    assert_same_state(twin, made)
    for each in (made, twin):
        each[0].step()
        each[0].zero_grad()
        take_steps(*each, 4)
    assert_same_state(twin, made)
    wb.load(tmp_path / "c", method=made[0], scheduler=made[1])
    assert_same_state(other, made)


@pytest.mark.parametrize("optimizer", ["nesterov", "adam", "nadam", "adagrad", "asgd"])
@pytest.mark.parametrize("error", [OverflowError("int too large"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_the_method_fails(tmp_path, fail, optimizer, error):
    other, made = build(optimizer=optimizer, seed=4), build(optimizer=optimizer, seed=1)
    take_steps(*other, 5)
    wb.save(tmp_path / "c", method=other[0], scheduler=other[1])
    take_steps(*made, 2)
    twin = copy.deepcopy(made)
    fail(wb.DeepR, error)
    with pytest.raises(wb.CheckpointError if isinstance(error, Exception) else KeyboardInterrupt):
        wb.load(tmp_path / "c", method=made[0], scheduler=made[1])
    assert_same_state(twin, made)
    for each in (made, twin):
        take_steps(*each, 3)
    assert_same_state(twin, made)


def test_a_hook_of_the_optimiser_or_of_the_model_fails(tmp_path):
    other, made = build(optimizer="adam", seed=4), build(optimizer="adam", seed=1)
    take_steps(*other, 5)
    wb.save(tmp_path / "c", method=other[0], scheduler=other[1])
    take_steps(*made, 2)
    twin = copy.deepcopy(made)

    def refuse(*arguments):
        raise TypeError("no")

    for hook in (
        made[0].optimizer.register_load_state_dict_post_hook(refuse),
        made[0].model[4].register_load_state_dict_post_hook(refuse),
    ):
        with pytest.raises(wb.CheckpointError, match=r"the (optimizer|model) did not take its state \(TypeError: no\): every"):
            wb.load(tmp_path / "c", method=made[0], scheduler=made[1])
        assert_same_state(twin, made)
        hook.remove()


def test_what_cannot_be_put_back_is_said(tmp_path, fail):
    made = build()
    wb.save(tmp_path / "c", method=made[0], scheduler=made[1])
    fail(StepLR, TypeError("no"), always=True)
    with pytest.raises(wb.CheckpointError, match="and scheduler could not be put back"):
        wb.load(tmp_path / "c", method=made[0], scheduler=made[1])


class Extra(nn.Linear):
    """A layer with state that is no tensor."""

    counted = 0

    def get_extra_state(self):
        return {"counted": self.counted}

    def set_extra_state(self, state):
        self.counted = state["counted"]


def test_extra_state_of_modules_is_put_back(tmp_path, fail):
    model, scheduler = Extra(3, 2), StepLR(torch.optim.SGD([torch.zeros(1)], lr=0.1), 2)
    wb.save(tmp_path / "c", model=model, scheduler=scheduler)
    model.counted = 5
    fail(StepLR, ValueError("no"))
    with pytest.raises(wb.CheckpointError):
        wb.load(tmp_path / "c", model=model, scheduler=scheduler)
    assert model.counted == 5
    wb.load(tmp_path / "c", model=model, scheduler=scheduler)
    assert model.counted == 0


def test_an_optimiser_that_carries_its_method(tmp_path):
    made = build(optimizer="adam")
    take_steps(*made, 3)
    carrying = made[0].optimizer
    wb.save(tmp_path / "c", model=made[0].model, optimizer=carrying)
    kept = copy.deepcopy(made)
    take_steps(*made, 3)
    wb.load(tmp_path / "c", model=made[0].model, optimizer=carrying)
    assert_same_state((kept[0], made[1]), (made[0], made[1]))
    take_steps(*made, 1)
    before = copy.deepcopy(made)

    def lie(tensors, document):
        tensors["optimizer/wirebound/state/born/0"][0] = 9

    rewrite(tmp_path / "c", lie)
    with pytest.raises(wb.CheckpointError, match=r"born/0 must be steps in \[0, 3\]"):
        wb.load(tmp_path / "c", model=made[0].model, optimizer=carrying)
    assert_same_state(before, made)
