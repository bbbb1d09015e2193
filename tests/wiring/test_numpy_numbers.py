"""Numbers of NumPy's types are as good as Python's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import wirebound as wb


def linears() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))


@pytest.mark.parametrize(
    "options",
    [
        {"budget": np.int64(10)},
        {"budget": np.uint8(10)},
        {"budget": torch.tensor(10)},
        {"connectivity": np.float32(0.2)},
        {"connectivity": np.float64(0.2)},
        {"allocation": np.array([4, 6])},
        {"allocation": {"0": np.int32(4), "1": 6}},
        {"budget": 10, "seed": np.int64(0)},
    ],
    ids=str,
)
def test_numpy_numbers_are_taken(options: dict[str, object]) -> None:
    model = wb.sparsify(linears(), **options)
    (wiring,) = wb.wirings(model)
    assert wiring.budget == 10
    assert type(wiring.budget) is int
    if "allocation" not in options:
        assert torch.equal(wiring.positions(), wb.wirings(wb.sparsify(linears(), budget=10))[0].positions())
    model(torch.randn(2, 6)).sum().backward()


def test_large_budgets_from_small_floats_are_exact() -> None:
    wiring = wb.SparseLinear(10**6, 10**6, bias=False, connectivity=np.float32(0.5) / np.float32(2**20)).wiring
    assert wiring.budget == round(0.5 / 2**20 * 10**12)


def test_layers_and_constraints_too() -> None:
    assert wb.SparseLinear(6, 5, budget=np.int16(7), seed=np.int64(3)).wiring.seed == 3
    assert wb.SparseConv2d(3, 4, np.int64(3), budget=np.int64(7)).kernel_size == (3, 3)
    limits = wb.Constraints(max_fan_in=np.int64(2))
    assert wb.wirings(wb.sparsify(nn.Linear(6, 5), budget=10, constraints=limits))[0].fan_caps is not None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"budget": 10.0}, r"budget \(=10.0\) must be a whole number"),
        ({"budget": np.float64(10)}, r"budget \(=.*10.0.*\) must be a whole number"),
        ({"budget": True}, r"budget \(=True\) must be a whole number"),
        ({"budget": np.True_}, r"budget \(=.*True.*\) must be a whole number"),
        ({"budget": "10"}, r"budget \(='10'\) must be a whole number"),
        ({"connectivity": "0.2"}, r"connectivity \(='0.2'\) must be a number in \(0, 1\]"),
        ({"connectivity": True}, r"connectivity \(=True\) must be a number"),
        ({"connectivity": np.float32(1.5)}, r"connectivity \(=1.5\) must be in \(0, 1\]"),
        ({"budget": 10, "seed": 0.5}, r"seed \(=0.5\) must be a whole number"),
        ({"budget": 10, "seed": np.int64(-1)}, r"seed \(=-1\) must be in"),
        ({"allocation": [True, 6]}, r"allocation of layer '0' \(=True\) must be a whole number"),
        ({"allocation": ["4", "6"]}, r"allocation of layer '0' \(='4'\) must be a connectivity"),
    ],
)
def test_others_are_refused_with_the_rule(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        wb.sparsify(linears(), **options)
