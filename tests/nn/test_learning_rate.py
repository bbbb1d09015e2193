"""Learning rates of sparse layers, from the dense network's."""

import math

import pytest
import torch
from torch import nn

import wirebound as wb


def test_sparse_layers_get_a_higher_rate_and_all_else_the_same():
    model = nn.Sequential(nn.Linear(200, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, 10))
    model = wb.sparsify(model, budget=1000, include=["0"])
    groups = wb.parameter_groups(model, lr=0.01, weight_decay=0.1)
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    factor = math.sqrt(20_000 / (1000 + 10 * 100))
    assert rates[id(model[0].wiring.theta)] == rates[id(model[0].bias)] == pytest.approx(0.01 * factor)
    assert rates[id(model[1].weight)] == rates[id(model[3].weight)] == 0.01
    assert sorted(rates) == sorted(id(p) for p in model.parameters())
    assert all(group["weight_decay"] == 0.1 for group in groups)
    method = wb.DeepR(model, torch.optim.AdamW(groups))
    model(torch.randn(8, 200)).square().mean().backward()
    assert method.step().active == 1000


def test_one_group_for_a_network_that_is_sparse_throughout_and_trains_fused():
    model = wb.sparsify(nn.Sequential(nn.Linear(50, 40), nn.ReLU(), nn.Linear(40, 10)), connectivity=0.1)
    (group,) = wb.parameter_groups(model, lr=0.1)
    assert group["lr"] > 0.1
    assert len(group["params"]) == 3


def test_a_full_layer_and_a_dense_model_keep_theirs():
    full = wb.sparsify(nn.Linear(50, 40), connectivity=1.0)
    assert [group["lr"] for group in wb.parameter_groups(full, lr=0.1)] == [0.1]
    assert [group["lr"] for group in wb.parameter_groups(nn.Linear(5, 4), lr=0.1)] == [0.1]
    with pytest.raises(ValueError, match=r"lr \(=-1\) must be a finite number >= 0"):
        wb.parameter_groups(full, lr=-1)
