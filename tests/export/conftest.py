"""A run on real MNIST, and small networks of every kind. pytest's importlib mode puts no folder on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import nn

sys.path.append(str(Path(__file__).resolve().parent))

from export_helpers import KINDS, RELU_KINDS, small_network

from wirebound_lab.run import train
from wirebound_lab.run.config import PRESETS, make_config


@pytest.fixture(scope="session")
def mnist_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run on MNIST at 1 %."""
    folder = tmp_path_factory.mktemp("export") / "run"
    train(make_config(PRESETS["recommended"], {"connectivity": 0.01, "epochs": 1}), folder)
    return folder


@pytest.fixture(params=KINDS)
def network(request: pytest.FixtureRequest) -> nn.Module:
    return small_network(request.param)


@pytest.fixture(params=RELU_KINDS)
def relu_network(request: pytest.FixtureRequest) -> nn.Module:
    return small_network(request.param)
