"""One small task for every trainer, and what must hold after it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import wirebound as wb

_draw = torch.Generator().manual_seed(3)
X = torch.randn(48, 12, generator=_draw)
Y = X[:, :3].argmax(1)


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.LayerNorm(24), nn.Linear(24, 3))
    return wb.sparsify(model, connectivity=0.3, seed=seed)


def rewiring(model: nn.Module, lr: float = 0.02, l1: float = 0.1) -> wb.DeepR:
    return wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=lr), l1=l1)


def rewiring_optimizer(model: nn.Module, lr: float = 0.02) -> torch.optim.Optimizer:
    return rewiring(model, lr).optimizer


def loader(**options: object) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(X, Y), batch_size=8, **options)  # type: ignore[arg-type]


def positions(model: nn.Module) -> list[Tensor]:
    return [wiring.positions().clone() for wiring in wb.wirings(model)]


def assert_trained(model: nn.Module, before: list[Tensor]) -> None:
    """The budget holds exactly, and connections have moved."""
    for wiring in wb.wirings(model):
        wiring.check()
        assert int((wiring.theta >= 0).sum()) == wiring.active == wiring.budget
    assert not all(torch.equal(a, b) for a, b in zip(before, positions(model), strict=True))
