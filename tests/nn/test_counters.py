"""Tools that go over a model and pass by what they do not know: FLOP counters and quantisation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import wirebound as wb
from wirebound.nn import sparse_layers


def flops(model: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """Of the forward pass, and of the backward pass."""
    with FlopCounterMode(display=False) as forward:
        y = model(x)
        y = y[0] if isinstance(y, tuple) else y
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("first", [True, False], ids=["data", "hidden"])
def test_a_linear_layer(first: bool) -> None:
    layer = wb.SparseLinear(9, 7, budget=20)
    x = torch.randn(4, 3, 9, requires_grad=not first)
    each = 2 * 12 * 20
    assert flops(layer, x) == (each, each if first else 2 * each)


@pytest.mark.usefixtures("implementation")
def test_other_layers() -> None:
    conv = wb.SparseConv2d(4, 6, 3, stride=2, budget=30)
    each = 2 * 5 * (4 * 3) * 30
    assert flops(conv, torch.randn(5, 4, 9, 7, requires_grad=True)) == (each, 2 * each)
    lstm = wb.SparseLSTM(4, 6, budget=50, bidirectional=True)
    each = 2 * 5 * 3 * 50
    assert flops(lstm, torch.randn(5, 3, 4, requires_grad=True)) == (each, 2 * each)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        lstm(torch.randn(5, 3, 4), lengths=torch.tensor([5, 1, 2]))
    assert counter.get_total_flops() == 2 * (5 + 1 + 2) * 50


def test_a_stack_is_counted_by_module() -> None:
    model = wb.sparsify(nn.Sequential(nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 5)), budget=40)
    x = torch.randn(4, 9)
    with FlopCounterMode(display=False) as counter:
        y = model(x)
    torch.testing.assert_close(y, model(x))
    counts = {name: sum(found.values()) for name, found in counter.get_flop_counts().items()}
    for name, layer in sparse_layers(model):
        assert counts[f"SparseSequential.{name}"] == 2 * 4 * layer.active
    assert counter.get_total_flops() == 2 * 4 * 40


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dynamic_quantisation_says_that_it_passes_by() -> None:
    model = wb.sparsify(nn.Sequential(nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 5)), 0.4)
    x = torch.randn(4, 9)
    with pytest.warns(UserWarning, match=r"leaves sparse layers as they are: quantise wb\.to_dense\(model\)"):
        quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    torch.testing.assert_close(quantised(x), model(x))
    copy.deepcopy(quantised)
    dense = torch.ao.quantization.quantize_dynamic(wb.to_dense(model), {nn.Linear})
    torch.testing.assert_close(dense(x), model(x), rtol=0.1, atol=0.1)
    assert "Dynamic" in str(dense)
