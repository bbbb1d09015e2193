"""torch.compile and autocast around sparse layers: the same results, within the precision that was asked for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb


class Mixed(nn.Module):
    """A layer of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Conv1d(4, 8, 3, padding=1)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.remember = nn.LSTM(8, 10, batch_first=True)
        self.answer = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.see(x)).transpose(1, 2)
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return self.answer(self.remember(x)[0].mean(1))


def model_and_data() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return wb.sparsify(Mixed(), 0.3), torch.randn(6, 4, 7), torch.arange(6) % 5


@pytest.mark.slow
def test_a_compiled_model_trains_as_the_plain_one() -> None:
    losses = []
    for compiled in (False, True):
        model, x, y = model_and_data()
        # This back end takes all of dynamo's way through the model, without building C++ for a minute.
        network = torch.compile(model, backend="aot_eager") if compiled else model
        method = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.01), l1=1e-2)
        losses.append([])
        born = 0
        for _ in range(12):
            loss = F.cross_entropy(network(x), y)
            loss.backward()
            info = method.step()
            method.zero_grad()
            assert info.active == info.budget
            born += info.rewired
            losses[-1].append(float(loss.detach()))
        assert born > 0
    torch._dynamo.reset()
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("implementation")
def test_autocast_trains_and_keeps_the_precision_of_parameters() -> None:
    model, x, y = model_and_data()
    exact = model(x).detach()
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=1e-3)
    losses = []
    for _ in range(20):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(x)
            loss = F.cross_entropy(output.float(), y)
        if not losses:
            torch.testing.assert_close(output.float(), exact, rtol=0.1, atol=0.05)
        loss.backward()
        info = method.step()
        method.zero_grad()
        assert info.active == info.budget
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert all(w.theta.dtype is torch.float32 for w in wb.wirings(model))


@pytest.mark.parametrize("layer", ["linear", "conv", "lstm", "attention"])
def test_second_derivatives_are_refused(layer: str) -> None:
    modules: dict[str, nn.Module] = {
        "linear": nn.Linear(6, 6),
        "conv": nn.Conv1d(6, 6, 1),
        "lstm": nn.LSTM(6, 6),
        "attention": nn.MultiheadAttention(6, 2),
    }
    model = wb.sparsify(modules[layer], 0.5)
    x = torch.randn(4, 6, 6, requires_grad=True)
    y = model(x, x, x)[0] if layer == "attention" else model(x)
    y = y[0] if isinstance(y, tuple) else y
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)
