"""The paper's rules for the settings of soft-DEEP R, which depend on each other (appendix A).

    θ_min ≈ − T (1 − p_min) / (α p_min)      p_min: the connectivity below which it will not fall
    α = 3 √(2T/η) = − θ_min / 3              the simpler rule, used for CIFAR-10 and TIMIT; so T = η α²/18
"""

import math


def _require(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} (={value}) must be a finite number > 0")
    return value


def theta_min_for(p_min: float, temperature: float, l1: float) -> float:
    """The θ_min at which the connectivity has the lower bound ``p_min``."""
    if not 0 < p_min < 1:
        raise ValueError(f"p_min (={p_min}) must be in (0, 1)")
    return -_require("temperature", temperature) * (1 - p_min) / (_require("l1", l1) * p_min)


def temperature_from_l1(l1: float, lr: float) -> float:
    """T = η α²/18, from α = 3 √(2T/η)."""
    return lr * l1 * l1 / 18


def theta_min_from_l1(l1: float) -> float:
    """θ_min = −3α."""
    return -3 * _require("l1", l1)
