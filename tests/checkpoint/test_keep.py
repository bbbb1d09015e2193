"""Saving and loading: what goes in comes out, and training goes on as if nothing had happened."""

import math
import pickle
from collections import Counter

import pytest
import torch
from checkpoint_helpers import METHODS, OPTIMIZERS, assert_same_state, build, rewrite, take_apart, take_steps
from safetensors.torch import load_file
from torch import nn

import wirebound as wb


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_bit_for_bit(tmp_path, method, optimizer, implementation):
    path = tmp_path / "c.safetensors"
    whole = build(method, optimizer)
    take_steps(*whole, 9)
    wb.save(path, method=whole[0], scheduler=whole[1])
    take_steps(*whole, 8)
    resumed = build(method, optimizer, seed=5)  # another start: everything must come from the file
    wb.load(path, method=resumed[0], scheduler=resumed[1])
    take_steps(*resumed, 8)
    assert_same_state(whole, resumed)


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_scopes_and_dropout(tmp_path, scope):
    """Dropout draws from torch's own generator, whose state is kept too."""
    path = tmp_path / "c.safetensors"
    torch.manual_seed(3)
    whole = build(scope=scope, dropout=0.5)
    take_steps(*whole, 5)
    wb.save(path, method=whole[0], scheduler=whole[1])
    take_steps(*whole, 5)
    torch.manual_seed(4)
    resumed = build(scope=scope, dropout=0.5, seed=1)
    wb.load(path, method=resumed[0], scheduler=resumed[1])
    take_steps(*resumed, 5)
    assert_same_state(whole, resumed)


def test_the_generator_is_left_alone_when_only_a_model_is_loaded(tmp_path):
    made, scheduler = build()
    wb.save(tmp_path / "c", method=made, scheduler=scheduler)
    before = torch.get_rng_state()
    wb.load(tmp_path / "c", model=made.model)
    torch.rand(3)
    wb.load(tmp_path / "c", method=made, random_state=False)
    assert not torch.equal(torch.get_rng_state(), before)
    wb.load(tmp_path / "c", method=made)
    assert torch.equal(torch.get_rng_state(), before)


S = torch.optim.lr_scheduler
SCHEDULERS = {
    "constant": lambda o: S.ConstantLR(o),
    "cosine": lambda o: S.CosineAnnealingLR(o, 20),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 4),
    "cyclic": lambda o: S.CyclicLR(o, 0.01, 0.1, cycle_momentum=False),
    "exponential": lambda o: S.ExponentialLR(o, 0.9),
    "lambda": lambda o: S.LambdaLR(o, lambda step: 0.9**step),
    "linear": lambda o: S.LinearLR(o),
    "milestones": lambda o: S.MultiStepLR(o, [3, 5, 5]),
    "one cycle": lambda o: S.OneCycleLR(o, 0.1, total_steps=60),
    "polynomial": lambda o: S.PolynomialLR(o, 20),
    "sequence": lambda o: S.SequentialLR(o, [S.ConstantLR(o), S.ExponentialLR(o, 0.9)], [4]),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o), S.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(tmp_path, name):
    def made(seed):
        method = build(seed=seed)[0]
        return method, SCHEDULERS[name](method.optimizer)

    whole, resumed = made(0), made(1)
    take_steps(*whole, 4)
    wb.save(tmp_path / "c", method=whole[0], scheduler=whole[1])
    wb.load(tmp_path / "c", method=resumed[0], scheduler=resumed[1])
    take_steps(*whole, 6)
    take_steps(*resumed, 6)
    assert whole[1].get_last_lr() == resumed[1].get_last_lr()
    for a, b in zip(whole[0].model.parameters(), resumed[0].model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_plateau(tmp_path):
    one, two = (build(seed=s)[0] for s in (0, 1))
    first, second = (S.ReduceLROnPlateau(m.optimizer, patience=1) for m in (one, two))
    for loss in (1.0, 0.5, 0.7):
        first.step(loss)
    wb.save(tmp_path / "c", method=one, scheduler=first)
    wb.load(tmp_path / "c", method=two, scheduler=second)
    for loss in (0.7, 0.7, 0.7):
        first.step(loss)
        second.step(loss)
    assert first.state_dict() == second.state_dict()


def test_extra_comes_back_as_what_it_was(tmp_path):
    extra = {
        "numbers": [1, 1.0, -0.0, True, None, math.inf, -math.inf, 2**80, 1e-320],
        "tuple": ((), (1, (2,))),
        "keys": {1: "a", "1": "b", -5: {}},
        "counter": Counter({3: 2}),
        "$": {"$": "tensor"},
        "text": "θ \ud800 \x00 ∞",
        "tensors": {"bool": torch.tensor([True, False]), "scalar": torch.tensor(3.5), "none": torch.zeros(0, 4)},
        "half": torch.ones(3, dtype=torch.bfloat16),
        "strided": torch.arange(6).view(2, 3).t(),
    }
    wb.save(tmp_path / "c", extra=extra)
    found = wb.load(tmp_path / "c").extra
    assert str(found) == str(extra)
    assert [type(n) for n in found["numbers"]] == [type(n) for n in extra["numbers"]]
    assert type(found["counter"]) is Counter
    nan = {"nan": math.nan}
    wb.save(tmp_path / "n", extra=nan)
    assert math.isnan(wb.load(tmp_path / "n").extra["nan"])


@pytest.mark.parametrize("value", [object(), {1, 2}, {(1, 2): 3}, b"bytes", lambda: 0, torch.ones(2).to_sparse(), 1j])
def test_what_cannot_be_kept_is_named(tmp_path, value):
    with pytest.raises(wb.CheckpointError, match="extra"):
        wb.save(tmp_path / "c", extra={"mine": value})
    assert list(tmp_path.iterdir()) == []


def test_what_a_checkpoint_tells(tmp_path):
    made = build()
    take_steps(*made, 3)
    wb.save(tmp_path / "c", method=made[0], scheduler=made[1], extra=[1])
    found = wb.load(tmp_path / "c")
    assert found.sections == ("model", "optimizer", "method", "scheduler", "random", "extra")
    assert (found.steps, found.extra, found.version) == (3, [1], 1)
    assert found.writer["torch"] == torch.__version__


def test_a_model_alone_and_its_optimiser_alone(tmp_path):
    model = wb.SparseLinear(20, 10, budget=30, seed=1)
    wb.save(tmp_path / "m", model=model)
    other = wb.SparseLinear(20, 10, budget=30, seed=2)
    wb.load(tmp_path / "m", model=other)
    assert torch.equal(other.dense_weight(), model.dense_weight())
    plain = nn.Linear(3, 2)
    adam = torch.optim.Adam(plain.parameters())
    plain(torch.ones(1, 3)).sum().backward()
    adam.step()
    wb.save(tmp_path / "o", model=plain, optimizer=adam)
    again = nn.Linear(3, 2)
    adam2 = torch.optim.Adam(again.parameters())
    wb.load(tmp_path / "o", model=again, optimizer=adam2)
    assert torch.equal(again.weight, plain.weight)
    assert torch.equal(adam2.state[again.weight]["exp_avg"], adam.state[plain.weight]["exp_avg"])


def test_any_reader_of_safetensors_finds_the_model(tmp_path):
    made = build()[0]
    wb.save(tmp_path / "c.safetensors", model=made.model)
    found = load_file(tmp_path / "c.safetensors")
    assert found.keys() == made.model.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in made.model.state_dict().items())


def test_files_from_before_packed_rows_had_its_name(tmp_path):
    whole, resumed = build(), build(seed=1)
    take_steps(*whole, 3)
    wb.save(tmp_path / "c", method=whole[0], scheduler=whole[1])

    def rename(tensors, document):
        state = document["model"]["state"]
        state["0.wiring.code"] = {**state.pop("0.wiring.packed_rows"), "name": "0.wiring.code"}
        tensors["0.wiring.code"] = tensors.pop("0.wiring.packed_rows")

    rewrite(tmp_path / "c", rename)
    wb.load(tmp_path / "c", method=resumed[0], scheduler=resumed[1])
    assert_same_state(whole, resumed)


def test_size_is_that_of_the_connections(tmp_path):
    """O(K), whatever the network is: 10^10 possible connections take as much as 10^6."""
    sizes = []
    for width in (1_000, 100_000):
        layer = wb.SparseLinear(width, width, budget=10_000, bias=False)
        method = wb.DeepR(layer, torch.optim.Adam(layer.parameters()))
        layer(torch.ones(1, width)).sum().backward()
        method.step()
        wb.save(tmp_path / "c", method=method)
        sizes.append((tmp_path / "c").stat().st_size - 8 * width)  # but for the column pointers
    assert sizes[0] < 10_000 * (4 * 5) + 20_000
    assert abs(sizes[1] - sizes[0]) < 2_000


def test_no_pickle(tmp_path, monkeypatch):
    def refuse(*arguments, **settings):
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(torch, "save", refuse)
    made = build(optimizer="adam")
    take_steps(*made, 2)
    wb.save(tmp_path / "c", method=made[0], scheduler=made[1])
    wb.load(tmp_path / "c", method=made[0], scheduler=made[1])


def test_wrappers_are_looked_through(tmp_path):
    made = build()[0]
    compiled = nn.Module()
    compiled._orig_mod = made.model  # what torch.compile makes
    wb.save(tmp_path / "c", model=compiled)
    assert set(take_apart(tmp_path / "c")[1]["model"]["state"]) == set(made.model.state_dict())
    wb.load(tmp_path / "c", model=compiled)
