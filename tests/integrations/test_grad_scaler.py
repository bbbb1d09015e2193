"""Scaled gradients: torch's GradScaler leaves those of fused optimisers to their step, which does not move θ."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.integrations import RewiringOptimizer

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


def _train(method, stepper, steps=8, spoil=None):
    """Training with a scaler; in step ``spoil`` a gradient is infinite."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(steps):
        scaler.scale(F.cross_entropy(method.model(X), Y)).backward()
        if step == spoil:
            next(iter(method.model.parameters())).grad[0] = float("inf")
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
    scaler = _train(scaled, RewiringOptimizer(scaled), spoil=spoil)
    assert torch.allclose(_end(plain), _end(scaled), atol=1e-5)
    assert scaler.get_scale() == (1024.0 if spoil is None else 512.0)


@pytest.mark.parametrize("method", [wb.DeepR, wb.SET, wb.ConstantRate, wb.Fixed])
@pytest.mark.parametrize("spoil", [None, 3])
def test_a_scale_that_was_left_on_the_optimiser(method, spoil):
    """As a trainer does that lets the optimiser's own step be the method's: the scale is taken from there."""

    class Stepper(torch.optim.Adam):
        def step(self, closure=None):
            self.inner.grad_scale, self.inner.found_inf = self.grad_scale, self.found_inf
            self.method.step()

    ends = []
    for fused in (False, True):
        made = _make("Adam", fused, method)
        if fused:
            stepper = Stepper(made.model.parameters(), lr=0.1, fused=True)
            stepper.method, stepper.inner = made, made.optimizer
            _train(made, stepper, spoil=spoil)
        else:
            _train(made, RewiringOptimizer(made), spoil=spoil)
        assert made.steps == (8 if spoil is None else 7)
        ends.append(_end(made))
    assert torch.allclose(*ends, atol=1e-5)
