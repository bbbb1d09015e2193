"""SET, and what all methods that replace connections promise: the same questions for SET and RigL."""

import copy

import pytest
import torch
import torch.nn.functional as F
from rival_helpers import OPTIMIZERS, bits, same, small, steps, task
from torch import nn

import wirebound as wb
from wirebound_lab.run import TrainConfig, train

METHODS = {
    "set": lambda m, o: wb.SET(m, o, every=4),
    "set, small random newborns": lambda m, o: wb.SET(m, o, every=3, newborn_scale=0.5, until=20),
    "rigl": lambda m, o: wb.RigL(m, o, every=4, until=25),
    "rigl, global": lambda m, o: wb.RigL(m, o, every=4, scope="global"),
    "pieces": lambda m, o: wb.Evolve(
        m, o, drop=wb.drop.SignFlips(), grow=wb.grow.Gradient(), when=wb.when.Every(3, 1.0), scope="global"
    ),
}


@pytest.fixture(params=METHODS)
def make(request):
    return METHODS[request.param]


@pytest.mark.parametrize(
    ("scope", "optimizer"), [("global", "momentum"), ("layer", "adam"), ("layer", "sgd"), ("global", "rmsprop")]
)
def test_budget_is_kept_at_every_step(implementation, make, scope, optimizer):
    model = small(scope)
    method = make(model, OPTIMIZERS[optimizer](model.parameters()))
    budget, rewired = sum(w.budget for w in wb.wirings(model)), []

    def check(info):
        for wiring in wb.wirings(model):
            wiring.check()
        assert info.active == info.budget == budget == sum(layer.active for layer in info.layers)
        rewired.append(info.rewired)

    first = F.cross_entropy(model(task()[0]), task()[1]).item()
    steps(model, method, 24, check)
    assert sum(rewired) > 0
    assert sum(n > 0 for n in rewired) <= 8
    assert F.cross_entropy(model(task()[0]), task()[1]).item() < first


def test_same_seed_same_run_other_seed_another(make):
    def run(seed):
        model = small(seed=seed)
        steps(model, make(model, OPTIMIZERS["momentum"](model.parameters())), 15)
        return bits(model)

    assert same(run(1), run(1))
    assert not same(run(1), run(2))


@pytest.mark.parametrize(("at", "optimizer"), [(3, "adam"), (4, "momentum"), (11, "adam")])
def test_a_checkpoint_goes_on_bit_for_bit(tmp_path, make, optimizer, at):
    """Also right before a step that grows: the watch on the next backward pass is part of going on."""

    def start(seed):
        model = small(seed=seed)
        return model, make(model, OPTIMIZERS[optimizer](model.parameters()))

    model, method = start(5)
    steps(model, method, at)
    wb.save(tmp_path / "kept.safetensors", method=method)
    steps(model, method, 9)
    other, other_method = start(6)
    wb.load(tmp_path / "kept.safetensors", method=other_method)
    steps(other, other_method, 9)
    assert same(bits(model), bits(other))
    assert wb.wirings(other)[0].seed == 5


def test_state_of_another_method_is_refused(tmp_path):
    model = small()
    method = METHODS["pieces"](model, OPTIMIZERS["adam"](model.parameters()))
    state = method.state_dict()
    assert set(state) == {"steps", "born", "signs", "updates"}
    with pytest.raises(ValueError, match=r"'signs' of \[\] connections, but the method keeps \[86\]"):
        method.load_state_dict({"steps": 1, "born": state["born"]})
    wb.save(tmp_path / "kept.safetensors", method=method)
    method.detach()
    with pytest.raises(wb.CheckpointError, match="its method is Evolve, here it is SET"):
        wb.load(tmp_path / "kept.safetensors", method=wb.SET(model, method.optimizer))


@pytest.mark.parametrize("name", ["momentum", "adam", "rmsprop"])
def test_newborns_have_a_clean_state_and_survivors_keep_theirs(implementation, name):
    model = small()
    optimizer = OPTIMIZERS[name](model.parameters())
    method = wb.RigL(model, optimizer, every=5)
    (wiring,) = wb.wirings(model)
    steps(model, method, 4)
    F.cross_entropy(model(task()[0]), task()[1]).backward()
    before = wiring.positions().tolist()
    twin = small()
    plain = wb.Fixed(twin, OPTIMIZERS[name](twin.parameters()))
    twin.load_state_dict(model.state_dict())
    plain.optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # else the two would share it
    F.cross_entropy(twin(task()[0]), task()[1]).backward()
    plain.step()
    info = method.step()
    assert info.rewired > 10
    kept = wb.wirings(twin)[0].theta
    expected = dict(zip(before, range(len(before)), strict=True))
    newborn = 0
    for key, value in optimizer.state[wiring.theta].items():
        if not isinstance(value, torch.Tensor) or not value.dim():
            continue
        theirs = plain.optimizer.state[kept][key]
        for k, position in enumerate(wiring.positions().tolist()):
            if wiring.theta[k] == 0:
                newborn += 1
                assert value[k] == 0
            else:
                assert value[k].item() == pytest.approx(theirs[expected[position]].item(), rel=1e-4, abs=1e-8)
    assert newborn >= info.rewired
    if name == "adam":
        assert method.adapter.born[0][wiring.theta == 0].eq(5).all()


def test_set_drops_the_smallest_of_each_sign_and_grows_at_random():
    layer = wb.SparseLinear(40, 30, bias=False, budget=200, seed=1)
    method = wb.SET(layer, torch.optim.SGD(layer.parameters(), lr=0.0), zeta=0.25, every=1)
    wiring = layer.wiring
    before = dict(zip(wiring.positions().tolist(), wiring.theta.tolist(), strict=True))
    positive, negative = (sorted((abs(w), p) for p, w in before.items() if (w < 0) is side) for side in (False, True))
    gone = {p for _, p in positive[: 50 - round(50 * len(negative) / 200)]}
    gone |= {p for _, p in negative[: round(50 * len(negative) / 200)]}
    wiring.theta.grad = torch.zeros_like(wiring.theta)
    assert method.step().rewired == 50
    after = dict(zip(wiring.positions().tolist(), wiring.theta.tolist(), strict=True))
    assert {p: w for p, w in after.items() if w} == {p: w for p, w in before.items() if p not in gone}
    born = {p for p, w in after.items() if not w}
    assert len(born) == 50
    assert len(born - set(before)) > 30


def test_newborn_weights_have_the_scale_of_first_ones_and_their_constant_sign():
    layer = wb.SparseLinear(400, 300, bias=False, budget=4000, seed=1)
    method = wb.SET(layer, torch.optim.SGD(layer.parameters(), lr=0.0), zeta=1.0, every=1, newborn_scale=0.5)
    wiring = layer.wiring
    wiring.theta.grad = torch.zeros_like(wiring.theta)
    assert method.step().rewired == 4000
    assert torch.equal(wiring.theta < 0, wiring.negative_signs(wiring.positions()))
    assert abs(wiring.theta.std() * 20 / 0.5 - 1) < 0.05


def test_digits_are_learnt_and_better_than_with_fixed_connections():
    """From the command line's own loop, which also counts the budget after every step."""
    accuracy = {}
    for method in ("fixed", "set", "rigl"):
        config = TrainConfig(
            data="digits", method=method, connectivity=0.05, hidden=[64], epochs=12, batch_size=20, lr=0.3, bias=True,
            init="sparse-fan-in", schedule="cosine",
        )
        summary = train(config).summary
        assert summary["min_active"] == summary["max_active"] == summary["budget"]
        assert summary["method"] == method
        assert method == "fixed" or summary["path"] == "module"
        accuracy[method] = summary["test_accuracy"]
    assert accuracy["set"] > accuracy["fixed"] + 0.05, accuracy
    assert accuracy["rigl"] > 0.8, accuracy


@pytest.mark.parametrize("method", ["set", "rigl"])
def test_a_run_can_be_resumed(tmp_path, method):
    config = TrainConfig(
        data="digits", method=method, connectivity=0.05, hidden=[20], epochs=2, batch_size=40, lr=0.3,
        optimizer="adam", replace_every=5, checkpoint_every=7,
    )

    def pull(progress):
        if progress.step >= 20:
            raise KeyError("pulled")

    whole = train(config, tmp_path / "whole")
    with pytest.raises(KeyError):
        train(config, tmp_path / "resumed", listener=pull)
    resumed = train(config, tmp_path / "resumed", resume=True)
    assert same(bits(whole.model), bits(resumed.model))


def test_wrong_input():
    model = small()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for make, message in [
        (lambda: wb.SET(model, sgd, zeta=1.5), r"zeta \(=1.5\) must be in \[0, 1\]"),
        (lambda: wb.SET(model, sgd, every=0), r"every \(=0\) must be >= 1"),
        (lambda: wb.SET(model, sgd, scope="network"), r"scope \(='network'\) must be one of"),
        (lambda: wb.SET(model, sgd, newborn_scale=-1), r"newborn_scale \(=-1\)"),
        (lambda: wb.SET(nn.Linear(2, 2), sgd), "SET needs a sparse model"),
        (lambda: wb.RigL(model, sgd, until=0), r"until \(=0\) must be >= 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
