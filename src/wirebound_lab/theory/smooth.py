"""The smooth mapping from parameter to weight, of which w = s max(θ, 0) is the limit.

The paper (appendix, "Details to: Convergence properties of soft-DEEP R") prints w = s (1/γ) log(1 + exp(γ s θ)). For
s = −1 that is not what it means: the weight would vanish for large θ and grow with −θ, while the limit beside it, and
all of its algorithms, have w = s θ for θ >= 0 and w = 0 for θ < 0. The s inside of the exponential is left out here.
"""

import math

import torch
from torch import Tensor


def smooth_weight(theta: Tensor, sign: Tensor | float, gamma: float) -> Tensor:
    """w = s (1/γ) log(1 + exp(γ θ)); at most log(2)/γ away from s max(θ, 0). Finite for every finite θ."""
    scaled = _scaled(theta, gamma)
    return sign * torch.logaddexp(scaled, torch.zeros_like(scaled)) / gamma


def smooth_gradient(theta: Tensor, sign: Tensor | float, gamma: float) -> Tensor:
    """∂w/∂θ = s σ(γ θ): the factor between ∂E/∂w and ∂E/∂θ."""
    return sign * torch.sigmoid(_scaled(theta, gamma))


def _scaled(theta: Tensor, gamma: float) -> Tensor:
    if not (math.isfinite(gamma) and gamma > 0):
        raise ValueError(f"gamma (={gamma}) must be a finite number > 0")
    return gamma * theta
