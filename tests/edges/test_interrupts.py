"""Ctrl-C in a notebook: caught, training continued. Whatever the moment, the wiring stays valid and nothing is overwritten."""

import signal
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound import ops


class _Interrupt(BaseException):
    """As KeyboardInterrupt, but told apart from a real one."""


def _interrupt(signum, frame):
    raise _Interrupt


def interrupted_training(model, rewiring, seconds):
    """Train under signals every few hundred microseconds, each caught as in a notebook; how many were caught."""
    x, y = torch.randn(16, 12), torch.randint(0, 4, (16,))
    before = signal.signal(signal.SIGALRM, _interrupt)
    caught, end = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            try:
                # The next one comes at another moment of the step each time.
                signal.setitimer(signal.ITIMER_REAL, 2e-4 + 1.7e-5 * (caught % 61))
                # Python drops one that comes while it calls a finalizer: then the next is sent.
                long_after = time.monotonic() + 0.02
                while time.monotonic() < long_after:
                    rewiring.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    rewiring.step()
            except _Interrupt:
                caught += 1
                torch.set_grad_enabled(True)  # torch itself may have been between switching them off and on
    finally:
        torch.set_grad_enabled(True)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return caught


def _model():
    return nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 4))


@pytest.mark.parametrize("name", ["native", "reference", "constrained", "other optimiser"])
def test_interrupts_at_random_moments_leave_a_valid_wiring(name):
    constraints = wb.Constraints(max_fan_in=12) if name == "constrained" else None
    model = wb.sparsify(_model(), connectivity=0.3, constraints=constraints)
    make = torch.optim.NAdam if name == "other optimiser" else torch.optim.Adam
    rewiring = wb.DeepR(model, make(model.parameters(), lr=0.02), l1=0.05)
    (wiring,) = wb.wirings(model)
    with ops.use("reference" if name == "reference" else "native"):
        F.cross_entropy(model(torch.randn(16, 12)), torch.randint(0, 4, (16,))).backward()
        rewiring.step()  # torch's own optimisers do not survive an interrupt while they make their state
        for _ in range(10):
            assert interrupted_training(model, rewiring, seconds=0.05) > 3
            wiring.check()
        rewiring.zero_grad()  # and it trains on
        F.cross_entropy(model(torch.randn(16, 12)), torch.randint(0, 4, (16,))).backward()
        info = rewiring.step()
    assert info.active == info.budget
    wiring.check()


def test_an_interrupt_right_behind_the_native_step(monkeypatch):
    """The moment that broke it: the arrays have moved, and nobody has noted it yet."""
    model = wb.sparsify(_model(), connectivity=0.3)
    rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.5), l1=0.05)
    (wiring,) = wb.wirings(model)
    x, y = torch.randn(16, 12), torch.randint(0, 4, (16,))

    def interrupted(*args):
        raise KeyboardInterrupt

    for _ in range(30):
        rewiring.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(type(wiring), "changed", interrupted)
            rewiring.step()
        wiring.check()
        torch.testing.assert_close(model(x), wb.to_dense(model)(x), rtol=1e-4, atol=1e-5)
