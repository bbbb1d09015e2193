"""Whole models whose neurons have limits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.config import ConfigError, make_config


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(80, 20), nn.ReLU(), nn.Linear(20, 4)
    )


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_limits_hold_in_every_layer_after_every_step(scope: str) -> None:
    limits = wb.Constraints(max_fan_in={"0": 5, "3": 12}, max_fan_out=9, dale={"3": 0.5})
    model = wb.sparsify(network(), 0.12, scope=scope, constraints=limits)
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=1e-2, temperature=1e-4)
    x, y = torch.randn(16, 3, 10), torch.randint(4, (16,))
    for _ in range(15):
        nn.functional.cross_entropy(model(x), y).backward()
        info = method.step()
        method.zero_grad()
        assert info.active == info.budget == sum(w.active for w in wb.wirings(model))
        for wiring in wb.wirings(model):
            wiring.check()
    convolution, linear, last = (model[i].dense_weight().flatten(1) for i in (0, 3, 5))
    assert int((convolution != 0).sum(1).max()) <= 5
    assert int((linear != 0).sum(1).max()) <= 12
    for weights in (convolution, linear, last):
        assert int((weights != 0).sum(0).max()) <= 9
    assert bool(((linear >= 0).all(0) | (linear <= 0).all(0)).all())


def test_a_layer_without_room_passes_its_share_on() -> None:
    model = wb.sparsify(network(), budget=150, constraints=wb.Constraints(max_fan_in={"3": 2}))
    free = wb.wirings(wb.sparsify(network(), budget=150))[0].layer_active
    counts = wb.wirings(model)[0].layer_active
    assert sum(counts) == sum(free) == 150
    assert free[1] > 40
    assert counts[1] <= 40


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="names layer 'nowhere', which must be one of"):
        wb.sparsify(network(), 0.1, constraints=wb.Constraints(max_fan_in={"nowhere": 3}))
    with pytest.raises(ValueError, match="room for"):
        wb.sparsify(network(), 0.9, constraints=wb.Constraints(max_fan_in=1))


@pytest.mark.parametrize("method", ["deep-r", "set", "rigl", "fixed"])
def test_training_keeps_them(method: str, tmp_path: Path) -> None:
    config = make_config(
        {"data": "digits", "method": method, "connectivity": 0.05, "hidden": [30], "epochs": 1, "dale": 0.7},
        {"max_fan_in": 8, "max_fan_out": 6, "lr": 0.1},
    )
    result = train(config, tmp_path / "run")
    assert result.summary["path"] == "module" or method == "fixed"
    for wiring in wb.wirings(result.model):
        wiring.check()
        for part, layer in enumerate(wiring.layers):
            weights = wiring.layer_dense(part)
            assert int((weights != 0).sum(1).max()) <= 8, layer.name
            assert int((weights != 0).sum(0).max()) <= 6, layer.name
            assert bool(((weights >= 0).all(0) | (weights <= 0).all(0)).all()), layer.name


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"max_fan_in \(=3\) must not be given for dense"):
        TrainConfig(method="dense", max_fan_in=3).check()
    with pytest.raises(ConfigError, match=r"max_fan_out \(=0\) must be a finite number >= 1"):
        TrainConfig(connectivity=0.1, max_fan_out=0).check()
    with pytest.raises(ConfigError, match=r"dale \(=1.5\) must be in \[0, 1\]"):
        TrainConfig(connectivity=0.1, dale=1.5).check()
