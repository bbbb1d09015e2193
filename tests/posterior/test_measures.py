"""The measures against cases that can be worked out by hand."""

import math

import pytest
import torch

from wirebound.posterior import calibration_error, fit_power, quality, sharpen


def test_by_hand():
    p = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]])
    y = torch.tensor([0, 1, 1, 1])
    found = quality(p, y)
    assert found.accuracy == 0.75
    assert found.nll == pytest.approx(-(math.log(0.9) + math.log(0.4) + math.log(0.8) + math.log(0.7)) / 4)
    # Each confidence (0.9, 0.6, 0.8, 0.7) is in a bin of its own: gaps 0.1, 0.6, 0.2, 0.3.
    assert found.ece == pytest.approx((0.1 + 0.6 + 0.2 + 0.3) / 4)


def test_gaps_within_a_bin_cancel():
    """Two bins: of four predictions with confidence 0.75, three are right: perfectly calibrated."""
    p = torch.tensor([[0.75, 0.25]] * 4)
    y = torch.tensor([0, 0, 0, 1])
    assert calibration_error(p, y) == pytest.approx(0.0)
    assert calibration_error(p, 1 - y) == pytest.approx(0.5)


def test_calibrated_draws_have_little_error_and_overconfident_ones_much():
    generator = torch.Generator().manual_seed(0)
    p = (2 * torch.randn(40_000, 5, generator=generator)).softmax(1)
    y = torch.multinomial(p, 1, generator=generator)[:, 0]
    assert calibration_error(p, y) < 0.01
    sharp = p.pow(3) / p.pow(3).sum(1, keepdim=True)
    assert calibration_error(sharp, y) > 0.1
    assert quality(p, y).nll < quality(sharp, y).nll


def test_certainty_belongs_to_the_last_bin():
    p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    found = quality(p, torch.tensor([0, 0]))
    assert found.ece == pytest.approx(0.5)
    assert math.isfinite(found.nll)


def test_logits_are_refused():
    with pytest.raises(ValueError, match="softmax"):
        quality(torch.tensor([[3.0, -1.0]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="label for each"):
        quality(torch.tensor([[0.5, 0.5]]), torch.tensor([0, 1]))


def test_sharpening_by_hand():
    p = torch.tensor([[0.8, 0.2], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(sharpen(p, 2.0), torch.tensor([[0.64 / 0.68, 0.04 / 0.68], [0.5, 0.5]], dtype=torch.float64))
    torch.testing.assert_close(sharpen(p, 1.0), p)
    with pytest.raises(ValueError, match=r"power \(=0\) must be > 0"):
        sharpen(p, 0)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.5])
def test_the_power_that_spoiled_probabilities_is_undone(power):
    generator = torch.Generator().manual_seed(0)
    true = (3 * torch.randn(20_000, 5, generator=generator, dtype=torch.float64)).softmax(1)
    y = torch.multinomial(true, 1, generator=generator).squeeze(1)
    spoiled = sharpen(true, 1 / power)
    found = fit_power(spoiled, y)
    assert found == pytest.approx(power, rel=0.05)
    mended = quality(sharpen(spoiled, found), y)
    assert mended.nll <= quality(spoiled, y).nll
    assert mended.ece < 0.01
