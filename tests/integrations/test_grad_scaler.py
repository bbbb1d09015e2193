"""Scaled gradients: torch's GradScaler leaves those of fused optimisers to their step, which does not move θ."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb

X = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)
OPTIMIZERS = {
    "SGD": lambda p, fused: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=fused),
    "Adam": lambda p, fused: torch.optim.Adam(p, lr=0.01, fused=fused),
    "AdamW": lambda p, fused: torch.optim.AdamW(p, lr=0.01, fused=fused),
    "Adagrad": lambda p, fused: torch.optim.Adagrad(p, lr=0.01, fused=fused),
}


def _make(optimizer, fused, method=wb.DeepR, **settings):
    torch.manual_seed(1)
    model = wb.sparsify(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3)), connectivity=0.3, seed=5)
    return method(model, OPTIMIZERS[optimizer](model.parameters(), fused), **settings)


def _train(method, stepper, steps=8, spoil=None, unscale=False):
    """Training with a scaler; in step ``spoil`` a gradient is infinite."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(steps):
        scaler.scale(F.cross_entropy(method.model(X), Y)).backward()
        if step == spoil:
            next(iter(method.model.parameters())).grad[0] = float("inf")
        if unscale:
            scaler.unscale_(stepper)
            nn.utils.clip_grad_norm_(method.model.parameters(), 10.0)
        scaler.step(stepper)
        scaler.update()
        method.zero_grad()
    return scaler


def _end(method):
    return torch.cat([p.detach().flatten() for p in method.model.parameters()])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("spoil", [None, 3])
def test_a_scaled_run_is_the_plain_run(optimizer, spoil):
    plain = _make(optimizer, fused=False, l1=1e-3)
    for step in range(8):
        F.cross_entropy(plain.model(X), Y).backward()
        if step != spoil:
            plain.step()
        plain.zero_grad()
    scaled = _make(optimizer, fused=True, l1=1e-3)
    scaler = _train(scaled, scaled.optimizer, spoil=spoil)
    assert torch.allclose(_end(plain), _end(scaled), atol=1e-5)
    assert scaler.get_scale() == (1024.0 if spoil is None else 512.0)


@pytest.mark.parametrize("method", [wb.DeepR, wb.SET, wb.RigL, wb.ConstantRate, wb.Fixed])
@pytest.mark.parametrize("spoil", [None, 3])
@pytest.mark.parametrize("unscale", [False, True])
def test_every_method_steps_when_the_scaler_does(method, spoil, unscale):
    """Fused optimisers are given the scale and divide by it themselves; the others are given divided gradients."""
    ends = []
    for fused in (False, True):
        made = _make("Adam", fused, method)
        _train(made, made.optimizer, spoil=spoil, unscale=unscale)
        assert made.steps == (8 if spoil is None else 7)
        wb.wirings(made.model)[0].check()
        ends.append(_end(made))
    assert torch.allclose(*ends, atol=1e-5)


@pytest.mark.parametrize("method", [wb.Dense, wb.L1Shrinkage, wb.MagnitudePruning, wb.SoftDeepR])
def test_a_skipped_step_is_none_of_a_plain_method(method):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))
    made = method(model, OPTIMIZERS["SGD"](model.parameters(), True))
    _train(made, made.optimizer, spoil=3)
    assert made.steps == 7
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
