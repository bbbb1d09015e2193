"""``wb.centre_gradients_``: what the gradients of a unit's connections have in common, and nothing else, is damped."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb


def made(scope: str = "global") -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    model = wb.sparsify(nn.Sequential(nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 5)), 0.3, scope=scope, seed=3)
    generator = torch.Generator().manual_seed(0)
    return model, torch.randn(16, 20, generator=generator), torch.randint(5, (16,), generator=generator)


def weight_gradients(model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """∂E/∂w of each connection, and its unit among those of both layers."""
    wiring = wb.wirings(model)[0]
    rows = (wiring.packed_rows & 0x7FFFFFFF).long()
    rows[wiring.bounds[1] :] += wiring.layers[0].n_out
    return wiring.theta.grad * torch.where(wiring.packed_rows < 0, -1.0, 1.0), rows


@pytest.mark.parametrize("keep", [0.0, 0.25, 1.0])
def test_the_mean_of_each_unit_is_damped(keep):
    model, x, y = made()
    F.cross_entropy(model(x), y).backward()
    before, units = weight_gradients(model)
    wb.centre_gradients_(model, keep)
    after, _ = weight_gradients(model)
    for unit in units.unique():
        own = before[units == unit]
        torch.testing.assert_close(after[units == unit], own - (1 - keep) * own.mean())


def test_it_follows_the_connections():
    model, x, y = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    method = wb.DeepR(model, optimizer, l1=1e-2)
    wiring = wb.wirings(model)[0]
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        wb.centre_gradients_(model)
        gradient, units = weight_gradients(model)
        assert torch.zeros(17).index_add_(0, units, gradient).abs().max() < 1e-5
        method.step()
        wiring.check()
    assert method.steps == 30


def test_a_wrong_share_is_refused():
    model, *_ = made()
    with pytest.raises(ValueError, match=r"keep \(=1.5\) must be in \[0, 1\]"):
        wb.centre_gradients_(model, 1.5)
    with pytest.raises(ValueError, match="has no sparse layers"):
        wb.centre_gradients_(nn.Linear(2, 2))
