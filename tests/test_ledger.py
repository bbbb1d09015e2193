"""The ledger counts what is there, to the byte."""

import pytest
import torch
from torch import nn

import wirebound as wb


@pytest.mark.parametrize(
    ("make", "per_connection"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 12),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 16),
        (lambda p: torch.optim.Adam(p, lr=0.1), 20),
    ],
)
def test_bytes_for_each_connection(make, per_connection):
    model = wb.sparsify(nn.Sequential(nn.Linear(100, 200), nn.Linear(200, 50)), budget=3000)
    optimizer = make(model.parameters())
    rewiring = wb.DeepR(model, optimizer)
    model(torch.randn(3, 100)).sum().backward()
    rewiring.step()
    held = wb.ledger(model, rewiring)
    assert held.per_connection == per_connection
    counted = {id(t): t for t in [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]}
    for state in optimizer.state.values():
        counted |= {id(v): v for v in state.values() if isinstance(v, torch.Tensor)}
    counted |= {id(t): t for t in rewiring.adapter.born}
    everything = sum(t.numel() * t.element_size() for t in counted.values())
    small = 3 * 4 + sum(t.numel() * 8 for w in wb.wirings(model) for t in (w.initial_counts, w.identity))
    assert everything - small <= held.total <= everything
    assert "total" in str(held)


def test_a_dense_model():
    held = wb.ledger(nn.Linear(10, 10))
    assert held.total == 440
    assert held.connections == 0
