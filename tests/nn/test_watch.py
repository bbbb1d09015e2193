"""A watched wiring keeps what is needed for the gradient of any weight, active or not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import wirebound as wb


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_blocks_are_the_dense_gradient(scope: str) -> None:
    torch.manual_seed(0)
    model = wb.sparsify(nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)).double(), 0.4, scope=scope)
    dense = wb.to_dense(model)
    for wiring in wb.wirings(model):
        wiring.watch = {}
    x = torch.randn(6, 7, dtype=torch.float64)
    for network in (model, dense):
        network(x).square().sum().backward()
    found = [w.watch[part] for w in wb.wirings(model) for part in range(len(w.layers))]
    for layer, sources in zip((dense[0], dense[2]), found, strict=True):
        (source,) = sources
        width = layer.in_features
        got = torch.cat([source.block(0, 2), source.block(2, width)], 1)
        torch.testing.assert_close(got, layer.weight.grad)


def test_no_one_watches_by_default() -> None:
    model = wb.sparsify(nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3)), 0.4)
    model(torch.randn(6, 7)).sum().backward()
    assert all(w.watch is None for w in wb.wirings(model))
