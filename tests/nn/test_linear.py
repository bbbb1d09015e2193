"""What stands between a call of SparseLinear and its op: where the bias comes from, and function transforms."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import wirebound as wb


class Doubled(nn.Module):
    def forward(self, bias):
        return 2 * bias


@pytest.fixture
def layer():
    layer = wb.SparseLinear(6, 4, connectivity=0.5, seed=1)
    nn.init.ones_(layer.bias)
    return layer


def test_a_bias_that_is_computed(layer):
    x = torch.randn(3, 6)
    before = layer(x)
    parametrize.register_parametrization(layer, "bias", Doubled())
    y = layer(x)
    torch.testing.assert_close(y, before + 1)
    y.sum().backward()
    torch.testing.assert_close(layer.parametrizations.bias.original.grad, torch.full((4,), 6.0))


@pytest.mark.parametrize("depth", [1, 2])
def test_function_transforms(layer, depth):
    model = layer if depth == 1 else wb.sparsify(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), budget=30)
    x = torch.randn(3, 6, requires_grad=True)
    found = torch.func.grad(lambda x: model(x).square().sum())(x.detach())
    model(x).square().sum().backward()
    torch.testing.assert_close(found, x.grad)
