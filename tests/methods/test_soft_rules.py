"""The paper's rules for soft-DEEP R, against its own numbers and against the algorithm itself."""

import math

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound.methods.soft_rules import temperature_from_l1, theta_min_for, theta_min_from_l1


def test_the_papers_mnist_setting():
    """α = 1e-5, T = ηα²/18, η = 0.05; θ_min = −T(1 − p)/(αp), here by hand for p = 1 %."""
    temperature = 0.05 * 1e-10 / 18
    assert temperature_from_l1(1e-5, 0.05) == pytest.approx(temperature)
    assert theta_min_for(0.01, temperature, 1e-5) == pytest.approx(-temperature * 0.99 / (1e-5 * 0.01))
    assert theta_min_for(0.01, temperature, 1e-5) == pytest.approx(-2.75e-6)
    # g = √(2T/η) = α/3, as the authors' code has it
    assert math.sqrt(2 * temperature / 0.05) == pytest.approx(1e-5 / 3)


@pytest.mark.parametrize("l1", [1e-6, 0.03])
def test_the_simpler_rule(l1):
    lr = 0.3
    temperature = temperature_from_l1(l1, lr)
    assert 3 * math.sqrt(2 * temperature / lr) == pytest.approx(l1)
    assert theta_min_from_l1(l1) == -3 * l1
    theta_min = theta_min_for(0.07, temperature, l1)
    assert temperature / (temperature - l1 * theta_min) == pytest.approx(0.07)


@pytest.mark.parametrize(
    ("rule", "values", "message"),
    [
        (theta_min_for, (0.0, 1.0, 1.0), r"p_min \(=0.0\) must be in \(0, 1\)"),
        (theta_min_for, (1.0, 1.0, 1.0), r"p_min \(=1.0\)"),
        (theta_min_for, (0.5, 0.0, 1.0), r"temperature \(=0.0\) must be a finite number > 0"),
        (theta_min_for, (0.5, 1.0, 0.0), r"l1 \(=0.0\)"),
        (theta_min_from_l1, (math.nan,), "l1"),
    ],
)
def test_wrong_values(rule, values, message):
    with pytest.raises(ValueError, match=message):
        rule(*values)


def test_without_a_gradient_the_connectivity_is_what_the_rule_says():
    """The stationary law behind the rule: exponential above 0, uniform down to θ_min."""
    model = nn.Linear(100, 100, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    soft = wb.SoftDeepR(model, optimizer, l1=1.0, temperature=1.0, connectivity=0.2, gain=10.0)
    assert soft.theta_min == [pytest.approx(-4.0)]
    assert soft.layer_active() == [2000]
    counts = []
    for step in range(700):
        model.weight.grad = torch.zeros_like(model.weight)
        active = soft.step().active
        if step >= 400:
            counts.append(active)
    assert sum(counts) / len(counts) / 10_000 == pytest.approx(0.2, abs=0.015)
    # Among the active, θ has the mean T/α of the exponential law; the dormant are spread evenly.
    assert float(soft.theta[0][soft.theta[0] > 0].mean()) == pytest.approx(1.0, abs=0.1)
    assert float(soft.theta[0][soft.theta[0] < 0].mean()) == pytest.approx(-2.0, abs=0.1)
