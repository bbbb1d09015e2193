"""The smooth mapping: its limits, its slope, and that it does not overflow."""

import math

import pytest
import torch

from wirebound_lab.theory import smooth_gradient, smooth_weight

THETA = torch.tensor([-3.0, -0.5, -0.01, 0.0, 0.01, 0.5, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_large_gamma_gives_the_mapping_of_the_algorithms(sign):
    limit = sign * THETA.clamp(min=0)
    gaps = [float((smooth_weight(THETA, sign, gamma) - limit).abs().max()) for gamma in (1, 10, 100, 1000)]
    for gamma, gap in zip((1, 10, 100, 1000), gaps, strict=True):
        assert gap == pytest.approx(math.log(2) / gamma)  # at θ = 0, where it is largest


def test_the_printed_formula_does_not_have_that_limit():
    """With the sign inside of the exponential, as printed, a negative connection is active where θ < 0."""
    gamma, sign, theta = 1000.0, -1.0, torch.tensor([3.0, -3.0], dtype=torch.float64)
    printed = sign * torch.logaddexp(gamma * sign * theta, torch.zeros_like(theta)) / gamma
    assert printed.tolist() == pytest.approx([0.0, -3.0])
    assert smooth_weight(theta, sign, gamma).tolist() == pytest.approx([-3.0, 0.0])


@pytest.mark.parametrize("gamma", [0.5, 4.0, 60.0])
def test_the_slope_is_the_derivative(gamma):
    theta = THETA.clone().requires_grad_()
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
    smooth_weight(theta, sign, gamma).sum().backward()
    torch.testing.assert_close(smooth_gradient(THETA, sign, gamma), theta.grad)


def test_far_out_it_is_finite_and_exact():
    theta = torch.tensor([-1e30, -1e4, 1e4, 1e30])
    assert smooth_weight(theta, -1.0, 50.0).tolist() == pytest.approx([0.0, 0.0, -1e4, -1e30])
    assert smooth_gradient(theta, -1.0, 50.0).tolist() == [0.0, 0.0, -1.0, -1.0]


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.inf, math.nan])
def test_gamma_must_be_positive(gamma):
    with pytest.raises(ValueError, match="gamma"):
        smooth_weight(THETA, 1.0, gamma)
