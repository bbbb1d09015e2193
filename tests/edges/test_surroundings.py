"""Settings of the process and of torch that a model finds itself in, and parts of it that others take away or replace."""

import copy
import os
import signal
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound import WiringError


@pytest.fixture
def defaults():
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)
    torch.set_default_device("cpu")


def _train(model, rewiring, x, y, steps=5):
    for _ in range(steps):
        rewiring.zero_grad()
        F.cross_entropy(model(x), y).backward()
        info = rewiring.step()
    return info


@pytest.mark.parametrize("method", [wb.DeepR, wb.SET, wb.ConstantRate])
def test_training_under_another_default_type(model, x, y, method, defaults):
    rewiring = method(model, torch.optim.Adam(model.parameters(), lr=0.01))
    torch.set_default_dtype(torch.float64)
    _train(model, rewiring, x, y)
    assert model(x).dtype is torch.float32
    torch.testing.assert_close(model(x), wb.to_dense(model)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"constraints": wb.Constraints(max_fan_in=20, dale=0.8)}], ids=["free", "constrained"])
@pytest.mark.parametrize("method", [wb.DeepR, wb.SET, wb.ConstantRate])
def test_training_under_another_default_device(x, y, method, settings, defaults):
    model = wb.sparsify(nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5)), connectivity=0.2, **settings)
    rewiring = method(model, torch.optim.Adam(model.parameters(), lr=0.01))
    torch.set_default_device("meta")
    _train(model, rewiring, x, y)
    torch.set_default_device("cpu")
    wb.wirings(model)[0].check()
    torch.testing.assert_close(model(x), wb.to_dense(model)(x), rtol=1e-4, atol=1e-5)


def test_sparsify_where_new_tensors_are_on_meta(x):
    with torch.device("meta"):
        model = wb.sparsify(nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5)), connectivity=0.2)
    torch.testing.assert_close(model(x), wb.to_dense(model)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("what", ["theta", "packed_rows", "colptr"])
def test_arrays_that_were_taken_away(model, x, what):
    model(x)
    delattr(wb.wirings(model)[0], what)
    with pytest.raises(WiringError, match="gone"):
        model(x)


def test_a_wiring_cannot_be_replaced(model, x):
    other = wb.SparseLinear(20, 40, connectivity=0.2)
    for layer in (m for m in model.modules() if isinstance(m, wb.SparseLinear)):
        with pytest.raises(AttributeError, match="cannot be replaced or wrapped"):
            layer.wiring = other.wiring
    torch.testing.assert_close(model(x), wb.to_dense(model)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.RMSprop])
@pytest.mark.parametrize("method", [wb.DeepR, wb.SET, wb.ConstantRate, wb.Fixed])
def test_a_step_that_overflows_leaves_theta_as_it_was(model, method, make):
    rewiring = method(model, make(model.parameters(), lr=3e38))
    (wiring,) = wb.wirings(model)
    before = wiring.theta.detach().clone()
    wiring.theta.grad = torch.full_like(wiring.theta, -1e3)
    with pytest.raises(FloatingPointError, match="was not taken"):
        rewiring.step()
    assert torch.equal(wiring.theta, before)


def test_ages_of_a_used_optimiser_are_kept(model, x, y, tmp_path):
    """An optimiser that stepped before its method has counted more steps than the method."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    rewiring = wb.DeepR(model, optimizer, l1=0.1, newborn_moments="own")
    _train(model, rewiring, x, y, steps=3)
    assert max(int(born.max()) for born in rewiring.adapter.born) > rewiring.steps
    wb.save(tmp_path / "c.safetensors", method=rewiring)
    wb.load(tmp_path / "c.safetensors", method=rewiring)


def test_a_copy_of_rigl_in_the_step_before_it_grows(model, x, y):
    rewiring = wb.RigL(model, torch.optim.SGD(model.parameters(), lr=0.1), every=3)
    _train(model, rewiring, x, y, steps=2)
    other = copy.deepcopy(rewiring)
    for one in (rewiring, other):
        _train(one.model, one, x, y, steps=1)
    assert torch.equal(wb.wirings(model)[0].packed_rows, wb.wirings(other.model)[0].packed_rows)


class _Interrupt(BaseException):
    pass


@pytest.mark.parametrize("name", ["ConstantRate", "Fixed", "SET"])
def test_interrupts_where_torch_moves_theta(name, x, y):
    """θ < 0 is there for a moment, between torch's step and what the method makes of it."""

    def interrupt(signum, frame):
        raise _Interrupt

    limits = None if name == "ConstantRate" else wb.Constraints(dale=0.8)
    model = wb.sparsify(nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5)), connectivity=0.2, constraints=limits)
    rewiring = getattr(wb, name)(model, torch.optim.Adagrad(model.parameters(), lr=0.05))
    (wiring,) = wb.wirings(model)
    before, end, caught = signal.signal(signal.SIGALRM, interrupt), time.monotonic() + 0.5, 0
    try:
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, 3e-4 + 2.3e-5 * (caught % 61))
                while True:
                    _train(model, rewiring, x, y, steps=1)
            except _Interrupt:
                caught += 1
                torch.set_grad_enabled(True)
                wiring.check()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        torch.set_grad_enabled(True)
    assert caught > 5


def test_a_model_in_shared_memory_that_another_process_trains(model, x, y):
    model.share_memory()
    model(x)
    child = os.fork()
    if child == 0:
        rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.1)
        _train(model, rewiring, x, y, steps=10)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    torch.testing.assert_close(model(x), wb.to_dense(model)(x), rtol=1e-4, atol=1e-5)
    wb.wirings(model)[0].check()
