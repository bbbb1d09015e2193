"""One step of Algorithm 1 up to the deaths: drift, noise and each optimiser apart, on both implementations."""

import dataclasses
import math

import pytest
import torch

from wirebound import ops
from wirebound.ops import philox
from wirebound.ops.rule import DriftAndNoise, Rule, RuleKind, State

K = 1003


def _theta(dtype=torch.float32):
    return torch.rand(K, dtype=dtype, generator=torch.Generator().manual_seed(0)) + 0.5


def _update(theta, grad, rule, state=None, drifts=(), step=1, **options):
    options = {"sign_bound": True, "clamp": False, **options}
    state = dataclasses.replace(state or State(), clock=step)
    return ops.backend_of(theta).update_(theta, grad, rule, state, list(drifts), 3, 2, step, **options)


def test_drift_alone(implementation):
    theta = _theta()
    before = theta.clone()
    dead = _update(theta, None, Rule(RuleKind.NONE), drifts=[DriftAndNoise(0, K, 0.25, 0.0)])
    assert torch.equal(theta, before - 0.25)
    assert dead.numel() == 0


def test_noise_alone(implementation):
    theta = _theta()
    before = theta.clone()
    _update(theta, None, Rule(RuleKind.NONE), drifts=[DriftAndNoise(0, K, 0.0, 0.01)], step=5)
    expected = before + 0.01 * philox.normals(3, 2, 5, K, torch.device("cpu"))
    assert torch.allclose(theta, expected, rtol=1e-6, atol=1e-7)


def test_temperature_zero_gives_no_noise(implementation):
    theta = _theta()
    before = theta.clone()
    _update(theta, None, Rule(RuleKind.NONE), drifts=[DriftAndNoise(0, K, 0.0, 0.0)])
    assert torch.equal(theta, before)


def test_layers_walk_apart(implementation):
    theta = _theta()
    before = theta.clone()
    _update(theta, None, Rule(RuleKind.NONE), drifts=[DriftAndNoise(0, 100, 0.1, 0.0), DriftAndNoise(100, K, 0.0, 0.2)])
    assert torch.equal(theta[:100], before[:100] - 0.1)
    nu = philox.normals(3, 2, 1, K, torch.device("cpu"))
    assert torch.allclose(theta[100:], (before + 0.2 * nu)[100:], rtol=1e-6, atol=1e-6)


def test_the_dead_are_those_below_zero(implementation):
    theta = _theta()
    theta[[3, 500, 1002]] = 0.01
    theta[7] = 0.1  # ends at exactly 0, which is active
    dead = _update(theta, None, Rule(RuleKind.NONE), drifts=[DriftAndNoise(0, K, 0.1, 0.0)])
    assert dead.tolist() == [3, 500, 1002]


def test_clamp_stops_at_zero(implementation):
    theta = _theta()
    theta[3] = 0.01
    dead = _update(theta, None, Rule(RuleKind.NONE), drifts=[DriftAndNoise(0, K, 0.1, 0.0)], clamp=True)
    assert dead.numel() == 0
    assert theta[3] == 0
    assert (theta >= 0).all()


def test_unbound_weights_may_cross_zero(implementation):
    theta = _theta()
    dead = _update(theta, theta * 2, Rule(RuleKind.SGD, lr=1.0), drifts=[DriftAndNoise(0, K, 0.1, 0.1)], sign_bound=False)
    assert dead.numel() == 0
    assert (theta < 0).all()


def test_nan_is_an_error(implementation):
    theta = _theta()
    grad = torch.zeros(K)
    grad[17] = math.nan
    with pytest.raises(FloatingPointError, match="step 1"):
        _update(theta, grad, Rule(RuleKind.SGD, lr=0.1))


SGD = [
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"momentum": 0.9, "maximize": True},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", SGD)
def test_sgd_is_torchs(implementation, options, dtype):
    mine, theirs = _theta(dtype), torch.nn.Parameter(_theta(dtype))
    optimizer = torch.optim.SGD([theirs], lr=0.01, **options)
    state = State(momentum=torch.zeros(K, dtype=dtype)) if "momentum" in options else State()
    for step in range(1, 6):
        grad = torch.randn(K, dtype=dtype, generator=torch.Generator().manual_seed(step))
        theirs.grad = grad.clone()
        optimizer.step()
        _update(mine, grad, Rule(RuleKind.SGD, lr=0.01, **options), state, step=step)
        assert torch.allclose(mine, theirs, rtol=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adam_is_torchs_for_connections_that_were_there_from_the_start(implementation, kind, weight_decay, dtype):
    mine, theirs = _theta(dtype), torch.nn.Parameter(_theta(dtype))
    optimizer = kind([theirs], lr=0.01, weight_decay=weight_decay)
    moments = [torch.zeros(K, dtype=dtype) for _ in range(2)]
    state = State(exp_avg=moments[0], exp_avg_sq=moments[1], born=torch.zeros(K, dtype=torch.int32))
    rule = Rule(RuleKind.ADAM, lr=0.01, weight_decay=weight_decay, decoupled=kind is torch.optim.AdamW)
    for step in range(1, 8):
        grad = torch.randn(K, dtype=dtype, generator=torch.Generator().manual_seed(step))
        theirs.grad = grad.clone()
        optimizer.step()
        _update(mine, grad, rule, state, step=step)
        assert torch.allclose(mine, theirs, rtol=2e-5 if dtype == torch.float32 else 1e-11)


def test_a_newborns_first_adam_step_is_a_first_step(implementation):
    """Whatever the optimiser's own count: |Δθ| = lr for a first gradient, as for an optimiser that starts now."""
    theta, grad = _theta(), torch.full((K,), 0.3)
    born = torch.full((K,), 5000, dtype=torch.int32)
    state = State(exp_avg=torch.zeros(K), exp_avg_sq=torch.zeros(K), born=born)
    before = theta.clone()
    _update(theta, grad, Rule(RuleKind.ADAM, lr=0.01), state, step=5001)
    assert torch.allclose(before - theta, torch.full((K,), 0.01), rtol=1e-4)


def test_same_bits_for_every_number_of_threads(implementation, threads):
    outcomes = []
    for count in (1, 2):
        torch.set_num_threads(count)
        theta = torch.rand(300_001, generator=torch.Generator().manual_seed(0))
        size = theta.numel()
        state = State(exp_avg=torch.zeros(size), exp_avg_sq=torch.zeros(size), born=torch.zeros(size, dtype=torch.int32))
        grad = torch.sin(torch.arange(size))
        dead = _update(theta, grad, Rule(RuleKind.ADAM, lr=0.01), state, [DriftAndNoise(0, size, 1e-3, 1e-2)])
        outcomes.append((theta, dead))
    assert torch.equal(outcomes[0][0], outcomes[1][0])
    assert torch.equal(outcomes[0][1], outcomes[1][1])
