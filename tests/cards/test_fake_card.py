"""Steps of every layer kind and method on a device without numbers: no mismatch of devices, and nobody waits.

One process for many checks (``fake_card_checks.py``): torch has to know the device, and would not forget it.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
LAYERS = (
    "Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "RNN", "LSTM", "GRU",
    "RNNCell", "LSTMCell", "GRUCell", "MultiheadAttention",
)  # fmt: skip
METHODS = (
    "DeepR", "DeepR, l1 auto", "DeepR, uniform", "DeepR, every other step", "DeepR, rates of layers", "Fixed", "SET",
    "SET, global", "RigL", "RigL, global", "Evolve, random", "SoftDeepR", "L1Shrinkage", "MagnitudePruning", "Dense",
)  # fmt: skip
WAITS = ("ConstantRate", "DeepR, by gradient", "GSE", "CHT", "Evolve, by sign")
QUICK = (
    "the mode notices", "layer Linear layer", "layer Conv2d global", "layer LSTM global", "method DeepR Adam", "method SET SGD",
    "method RigL SGD", "method Fixed Adam",
)  # fmt: skip


@functools.cache
def outcomes(*names: str) -> dict[str, str]:
    command = [sys.executable, str(HERE / "fake_card_checks.py"), *names]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=True).stdout.splitlines()
    return dict(json.loads(line) for line in lines)


def test_nobody_waits_for_the_device() -> None:
    found = outcomes(*QUICK)
    assert set(found) == set(QUICK)
    assert [fault for fault in found.values() if fault] == []


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_step_of_each_layer(kind: str, scope: str) -> None:
    assert outcomes()[f"layer {kind} {scope}"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_each_method(method: str, optimizer: str) -> None:
    assert outcomes()[f"method {method} {optimizer}"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("method", WAITS)
def test_those_that_wait_are_known(method: str) -> None:
    assert outcomes()[f"waits {method}"] == ""


@pytest.mark.slow
def test_no_check_is_left_out() -> None:
    layers = {f"layer {kind} {scope}" for kind in LAYERS for scope in ("global", "layer")}
    methods = {f"method {method} {optimizer}" for method in METHODS for optimizer in ("SGD", "Adam")}
    assert set(outcomes()) == {"the mode notices", *(f"waits {name}" for name in WAITS)} | layers | methods
