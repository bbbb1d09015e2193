"""ℓ1-shrinkage and magnitude pruning against a few slow lines of numpy."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.methods.l1_shrinkage import BEST_L1

X = torch.randn(20, 9, generator=torch.Generator().manual_seed(1))
TARGET = torch.randn(20, 4, generator=torch.Generator().manual_seed(2))
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.02, weight_decay=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 12), nn.Tanh(), nn.Linear(12, 4))


def _backward(model):
    F.mse_loss(model(X), TARGET).backward()


def _matrices(model):
    return [p.detach().double().numpy().copy() for p in model.parameters() if p.dim() > 1]


# ℓ1-shrinkage


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_shrinkage_against_numpy(name):
    """A twin is trained by torch alone; numpy shrinks what comes out of each step."""
    model, twin = _model(), _model()
    method = wb.L1Shrinkage(model, OPTIMIZERS[name](model.parameters()), l1=0.3)
    optimizer = OPTIMIZERS[name](twin.parameters())
    pull = optimizer.param_groups[0]["lr"] * 0.3
    fewest = 9 * 12 + 12 * 4
    for _ in range(30):
        _backward(model)
        info = method.step()
        method.zero_grad()
        _backward(twin)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for p in twin.parameters():
                if p.dim() > 1:
                    w = p.double().numpy()
                    p.copy_(torch.from_numpy(np.maximum(np.abs(w) - pull, 0) * np.sign(w)))
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-6)
        assert info.layer_active == [int((w != 0).sum()) for w in _matrices(model)]
        assert (info.budget, info.rewired) == (None, 0)
        fewest = min(fewest, info.active)
    assert fewest < method.highest_active == 9 * 12 + 12 * 4


def test_shrinkage_leaves_biases_and_excluded_matrices_alone():
    model = _model()
    method = wb.L1Shrinkage(model, torch.optim.SGD(model.parameters(), lr=1e-9), l1=1e12, exclude=["2.*"])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    _backward(model)
    method.step()
    assert not model[0].weight.any()
    for name in ("0.bias", "2.weight", "2.bias"):
        assert torch.allclose(dict(model.named_parameters())[name], before[name], atol=1e-6)


def test_the_papers_best_l1():
    assert round(math.log10(BEST_L1) * 2, 9) == -9


# Pruning


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pruning_against_numpy(name):
    model, twin = _model(), _model()
    method = wb.MagnitudePruning(model, OPTIMIZERS[name](model.parameters()), total_steps=30, quality=[0.7, 0.3])
    optimizer = OPTIMIZERS[name](twin.parameters())
    masks = [np.ones(w.shape, dtype=bool) for w in _matrices(twin)]
    assert method.prune_steps == [10, 20]
    counts = []
    for step in range(1, 31):
        _backward(model)
        info = method.step()
        method.zero_grad()
        _backward(twin)
        matrices = [p for p in twin.parameters() if p.dim() > 1]
        for p, mask in zip(matrices, masks, strict=True):
            p.grad[~torch.from_numpy(mask)] = 0
        optimizer.step()
        optimizer.zero_grad()
        for i, (p, q) in enumerate(zip(matrices, [0.7, 0.3], strict=True)):
            w = p.detach().numpy()
            if step in (10, 20):
                masks[i] &= np.abs(w) >= q * w[masks[i]].std()
                for value in optimizer.state[p].values():
                    if isinstance(value, torch.Tensor) and value.dim():
                        value[~torch.from_numpy(masks[i])] = 0
            w[~masks[i]] = 0  # shares memory with p
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-6)
        assert info.layer_active == [int(mask.sum()) for mask in masks]
        counts.append(info.active)
    assert counts[8] == 156 > counts[9] == counts[18] > counts[19] == counts[29]
    for p, mask in zip((p for p in model.parameters() if p.dim() > 1), masks, strict=True):
        gone = ~torch.from_numpy(mask)
        assert not p[gone].any()
        for value in method.optimizer.state[p].values():
            if isinstance(value, torch.Tensor) and value.dim():
                assert not value[gone].any()


@pytest.mark.parametrize("prune_at", [(1 / 3, 2 / 3), (0.5,), (0.2, 0.4, 0.6, 0.8)])
def test_pruning_to_a_connectivity(prune_at):
    """One q for all matrices that leaves exactly the wanted count, the same share at each pruning."""
    model = _model()
    method = wb.MagnitudePruning(
        model, torch.optim.SGD(model.parameters(), lr=0.1), total_steps=10, prune_at=prune_at, budget=20
    )
    for _ in range(10):
        _backward(model)
        before = [p.detach().clone() for p in model.parameters() if p.dim() > 1]
        was, info = method.layer_active(), method.step()
        method.zero_grad()
        if method.steps in method.prune_steps:
            number = method.prune_steps.index(method.steps) + 1
            assert info.active == round(156 * (20 / 156) ** (number / len(prune_at)))
    assert info.active == 20
    assert was == list(info.layer_active)
    assert sum(int((w != 0).sum()) for w in _matrices(model)) == 20
    assert len(before) == 2


def test_the_smallest_go_by_their_matrix_own_deviation():
    model = nn.ModuleList([nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)])
    values = torch.arange(1.0, 17.0)
    with torch.no_grad():
        model[0].weight.copy_(values.view(4, 4))
        model[1].weight.copy_(1000 * values.view(4, 4))
    method = wb.MagnitudePruning(model, torch.optim.SGD(model.parameters(), lr=0.1), total_steps=2, prune_at=[0.5], budget=10)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert method.step().layer_active == [5, 5]
    assert torch.equal(model[0].weight.flatten()[-5:], values[-5:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"total_steps": 0}, r"total_steps \(=0\) must be >= 1"),
        ({"prune_at": ()}, "prune_at"),
        ({"prune_at": (0.5, 1.0)}, r"each in \(0, 1\)"),
        ({"prune_at": (0.6, 0.4)}, "must be rising"),
        ({"quality": -1.0}, r"quality \(=-1.0\)"),
        ({"quality": 1.0, "connectivity": 0.1}, "give quality"),
        ({"connectivity": 0.0}, "connectivity"),
    ],
)
def test_wrong_settings(settings, message):
    model = _model()
    with pytest.raises(ValueError, match=message):
        wb.MagnitudePruning(model, torch.optim.SGD(model.parameters(), lr=0.1), **{"total_steps": 100, **settings})


def test_a_state_of_other_matrices_is_refused():
    model, other = _model(), nn.Linear(3, 3)
    mine = wb.MagnitudePruning(model, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = wb.MagnitudePruning(other, torch.optim.SGD(other.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="state has"):
        mine.load_state_dict(theirs.state_dict())
