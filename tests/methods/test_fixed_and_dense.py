"""The comparators that do not rewire."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb


def _mlp():
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))


def test_fixed_is_masked_dense_training(implementation):
    model = wb.sparsify(_mlp(), connectivity=0.3, seed=2)
    dense = wb.to_dense(model)
    masks = {name: p.detach() != 0 for name, p in dense.named_parameters() if p.dim() == 2}
    fixed = wb.Fixed(model, torch.optim.SGD(model.parameters(), lr=0.5))
    optimizer = torch.optim.SGD(dense.parameters(), lr=0.5)
    x, y = torch.randn(40, 12), torch.randint(0, 3, (40,))
    positions = wb.wirings(model)[0].positions()
    for _ in range(40):
        F.cross_entropy(model(x), y).backward()
        info = fixed.step()
        fixed.zero_grad()
        optimizer.zero_grad()
        F.cross_entropy(dense(x), y).backward()
        for name, p in dense.named_parameters():
            if name in masks:
                p.grad.mul_(masks[name])
        optimizer.step()
        assert (info.active, info.budget, info.rewired) == (72, 72, 0)
    wb.wirings(model)[0].check()
    assert torch.equal(positions, wb.wirings(model)[0].positions())
    assert torch.allclose(model(x), dense(x), atol=1e-4)


def test_fixed_weights_may_change_sign(implementation):
    model = wb.sparsify(nn.Linear(4, 4, bias=False), connectivity=1.0)
    fixed = wb.Fixed(model, torch.optim.SGD(model.parameters(), lr=1.0))
    before = model.dense_weight()
    model(torch.eye(4)).backward(2 * before.t())
    fixed.step()
    assert torch.allclose(model.dense_weight(), -before)


def test_deep_r_after_fixed_takes_the_weights_over():
    model = wb.sparsify(_mlp(), connectivity=0.3)
    wb.Fixed(model, torch.optim.SGD(model.parameters(), lr=1.0))
    x = torch.randn(5, 12)
    before = model(x)
    wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert torch.equal(model(x), before)
    wb.wirings(model)[0].check()


def test_dense_reports_all_connections_and_no_budget():
    model = _mlp()
    dense = wb.Dense(model, torch.optim.SGD(model.parameters(), lr=0.1))
    F.cross_entropy(model(torch.randn(4, 12)), torch.tensor([0, 1, 2, 0])).backward()
    info = dense.step()
    assert (info.active, info.budget, info.rewired) == (12 * 16 + 16 * 3, None, 0)


def test_wrong_models():
    with pytest.raises(ValueError, match="Dense needs a plain model"):
        model = wb.sparsify(_mlp(), connectivity=0.3)
        wb.Dense(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="Fixed needs a sparse model"):
        model = _mlp()
        wb.Fixed(model, torch.optim.SGD(model.parameters(), lr=0.1))
