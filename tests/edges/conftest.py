"""What the tests of sharp edges share: a small user's model, sparsified, and its dense twin."""

import pytest
import torch
from torch import nn

import wirebound as wb


class Net(nn.Module):
    """As a user writes it: no nn.Sequential."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(20, 40), nn.Linear(40, 5)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def stack():
    return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5))


@pytest.fixture(params=["class", "stack"])
def model(request):
    """One global budget over two layers, as a user's class and as a plain stack."""
    torch.manual_seed(0)
    return wb.sparsify(Net() if request.param == "class" else stack(), connectivity=0.2)


@pytest.fixture
def x():
    return torch.randn(64, 20, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def y():
    return torch.randint(0, 5, (64,), generator=torch.Generator().manual_seed(2))
