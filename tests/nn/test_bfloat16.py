"""Activations in bfloat16 under autocast: θ and all sums stay in float32, and gradients are those of float32 up to rounding."""

from __future__ import annotations

import pytest
import torch
from test_kinds_are_kept import MAKERS, Holder
from torch import Tensor, nn

import wirebound as wb
from wirebound import ops
from wirebound.nn import inputs

pytestmark = pytest.mark.usefixtures("implementation")


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
def test_gradients_are_those_of_float32_up_to_rounding(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = wb.sparsify(Holder(kind), 0.4)
    x = torch.randn(MAKERS[kind][1]).bfloat16().float().requires_grad_()
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y = model(x.bfloat16() if enabled else x)
        assert y.dtype is (torch.bfloat16 if enabled else torch.float32)
        gradients = torch.autograd.grad(y.float().square().mean(), (x, *model.parameters()))
        assert all(g.dtype is torch.float32 for g in gradients)
        found.append([y.float(), *gradients])
    largest = max(float(t.detach().norm()) for t in found[0])
    for exact, rounded in zip(*found, strict=True):
        # Some gradients are 0 but for rounding, as that of the bias of keys.
        assert float((exact - rounded).detach().norm()) < 0.03 * max(float(exact.detach().norm()), 0.05 * largest)


def test_kernels_get_pieces_and_what_is_kept_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, seen = wb.SparseLinear(40, 30, connectivity=0.3), []
    monkeypatch.setattr(inputs, "_PIECE", 40 * 8)
    forward = type(ops.backend_of(layer.wiring.theta)).linear_forward

    def watched(self: object, x: Tensor, *rest: object) -> Tensor:
        seen.append((tuple(x.shape), x.dtype))
        return forward(self, x, *rest)

    monkeypatch.setattr(type(ops.backend_of(layer.wiring.theta)), "linear_forward", watched)
    x = torch.randn(20, 40, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert seen == [((8, 40), torch.float32), ((8, 40), torch.float32), ((4, 40), torch.float32)]
    assert [t.dtype for t in y.grad_fn.saved_tensors] == [torch.bfloat16, torch.float32]
    expected = nn.functional.linear(x.float(), layer.dense_weight(), layer.bias)
    torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2)


def test_training_under_autocast_keeps_the_budget() -> None:
    torch.manual_seed(0)
    model = wb.sparsify(nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 4)), 0.3)
    rewiring = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.02), l1=1e-3)
    x, y = torch.randn(32, 12), torch.arange(32) % 4
    losses = []
    for _ in range(30):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        info = rewiring.step()
        rewiring.zero_grad()
        assert info.active == info.budget
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    assert all(w.theta.dtype is torch.float32 for w in wb.wirings(model))
