"""With what second moment a newborn starts: its layer's, or its own from the first gradient on."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb

OPTIMIZERS = {
    "adam": (lambda p: torch.optim.Adam(p, lr=0.01), "exp_avg_sq"),
    "amsgrad": (lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True), "max_exp_avg_sq"),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.01), "exp_avg_sq"),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.01), "square_avg"),
    "nadam": (lambda p: torch.optim.NAdam(p, lr=0.01), "exp_avg_sq"),
    "adamax": (lambda p: torch.optim.Adamax(p, lr=0.01), "exp_inf"),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.1), "sum"),
}


def _run(name, moments, steps, **settings):
    torch.manual_seed(0)
    model = wb.sparsify(nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 5)), connectivity=0.2)
    make, key = OPTIMIZERS[name]
    optimizer = make(model.parameters())
    method = wb.DeepR(model, optimizer, newborn_moments=moments, **{"l1": 0.3, **settings})
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(16, 30, generator=generator)
        F.cross_entropy(model(x), x[:, :5].argmax(1)).backward()
        method.step()
        method.zero_grad()
    return method, optimizer.state[method.wirings[0].theta][key]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_newborn_has_its_layers_second_moment_after_its_first_step(name, implementation):
    method, _ = _run(name, "layer", 130)
    wiring = method.wirings[0]
    newborn = wiring.positions()[wiring.theta.detach() == 0]
    assert newborn.numel()
    x = torch.randn(16, 30)
    F.cross_entropy(method.model(x), x[:, :5].argmax(1)).backward()
    grads = dict(zip(wiring.positions().tolist(), wiring.theta.grad.tolist(), strict=True))
    state = method.optimizer.state[wiring.theta]
    means = [float(state[OPTIMIZERS[name][1]][a:b].mean()) for a, b in itertools.pairwise(wiring.bounds)]
    method.l1 = [0.0] * len(method.l1)  # whoever has a useful gradient stays
    method.step()
    stayed = wiring.theta.detach() > 0  # not one of those that were born again at the same place
    second = dict(zip(wiring.positions()[stayed].tolist(), state[OPTIMIZERS[name][1]][stayed].tolist(), strict=True))
    survivors = [p for p in newborn.tolist() if p in second]
    assert survivors
    for position in survivors:
        layer = int(position >= wiring.geometry.position_start[1])
        assert second[position] > 0.2 * means[layer]
        assert second[position] > grads[position] ** 2 * 0.0005 - 1e-12


@pytest.mark.parametrize("name", ["adam", "adamw", "amsgrad"])
def test_both_implementations_take_the_same_steps(name):
    found = []
    for implementation in ("reference", "native"):
        with wb.ops.use(implementation):
            method, second = _run(name, "layer", 90, l1="auto")
        found.append((method.wirings[0].theta.detach(), second, method.wirings[0].positions(), method.l1[0].alpha))
    (theta, second, positions, alpha), other = found
    assert torch.equal(positions, other[2])
    assert torch.allclose(theta, other[0], atol=1e-4)
    assert torch.allclose(second, other[1], rtol=1e-2, atol=1e-7)
    assert alpha == pytest.approx(other[3], rel=1e-2)


def test_a_useless_newborn_moves_less_than_a_useful_one():
    """From nothing, every newborn's first step is η long; with its layer's moment, it is in proportion to its gradient."""
    lengths = {}
    for moments in ("layer", "own"):
        method, _ = _run("adam", moments, 200, temperature=0.0)
        wiring = method.wirings[0]
        born = wiring.positions()[wiring.theta.detach() == 0].tolist()
        x = torch.randn(16, 30)
        F.cross_entropy(method.model(x), x[:, :5].argmax(1)).backward()
        method.l1 = [0.0] * len(method.l1)
        method.step()
        after = dict(zip(wiring.positions().tolist(), wiring.theta.tolist(), strict=True))
        lengths[moments] = sorted(after[p] for p in born if after.get(p))
    assert lengths["own"][0] == pytest.approx(0.01, rel=0.01)
    assert lengths["own"][-1] == pytest.approx(0.01, rel=0.01)
    assert lengths["layer"][-1] > 3 * lengths["layer"][0]


def test_the_first_step_of_rmsprop_is_not_ten_times_too_long():
    for moments, longest in (("layer", 3.0), ("own", 10.1)):
        method, _ = _run("rmsprop", moments, 120, l1=0.3)
        wiring = method.wirings[0]
        born = set(wiring.positions()[wiring.theta.detach() == 0].tolist())
        x = torch.randn(16, 30)
        F.cross_entropy(method.model(x), x[:, :5].argmax(1)).backward()
        method.l1 = [0.0] * len(method.l1)
        method.step()
        moved = [t for p, t in zip(wiring.positions().tolist(), wiring.theta.tolist(), strict=True) if p in born]
        assert max(moved) <= longest * 0.01
        if moments == "own":
            assert max(moved) > 0.09


def test_adam_needs_no_birth_dates(tmp_path):
    method, _ = _run("adam", "layer", 30)
    assert method.adapter.born == []
    own, _ = _run("adam", "own", 30)
    assert wb.ledger(own.model, own).per_connection == wb.ledger(method.model, method).per_connection + 4
    wb.save(tmp_path / "own.safetensors", method=own)
    with pytest.raises(wb.CheckpointError, match="newborn_moments='own'"):
        wb.load(tmp_path / "own.safetensors", method=method)
