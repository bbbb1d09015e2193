"""The MNIST runs that several figures share, in the paper's settings: 784-300-100-10 without biases, η 0.05, batch 10.

A quick look trains such networks on the bundled digits.
"""

from __future__ import annotations

from typing import Any

from wirebound.methods.soft_rules import temperature_from_l1, theta_min_for
from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.job import TrainJob
from wirebound_lab.run.config import make_config

EPOCHS = 10
LEVELS = (0.003, 0.006, 0.01, 0.013, 0.025, 0.05, 0.1)
QUICK_LEVELS = (0.01, 0.05, 0.1)
# soft-DEEP R: connectivity at the start, and the p_min from which θ_min follows. The highest connectivity that it meets
# is far above p_min, because the rule leaves gradients out.
SOFT = ((0.003, 1e-4), (0.003, 3e-4), (0.01, 3e-4), (0.01, 1e-3), (0.01, 1e-2))
QUICK_SOFT = ((0.01, 1e-3), (0.05, 1e-2))
SOFT_L1 = 1e-5
L1_EXPONENTS = tuple(range(4, 13))
QUICK_EXPONENTS = (6, 9)
DECAYS = (0.0, 1e-4, 1e-3)
QUALITIES = (0.5, 1.0, 1.5, 2.0)
QUICK_DECAYS, QUICK_QUALITIES = (0.0, 1e-3), (0.5, 1.5)


def rate(scale: Scale) -> float:
    """η: the paper's; the digits have a fortieth of the steps and need a higher one."""
    return 0.5 if scale is Scale.QUICK else 0.05


def levels(scale: Scale) -> tuple[float, ...]:
    return QUICK_LEVELS if scale is Scale.QUICK else LEVELS


def soft_points(scale: Scale) -> tuple[tuple[float, float], ...]:
    return QUICK_SOFT if scale is Scale.QUICK else SOFT


def exponents(scale: Scale) -> tuple[int, ...]:
    return QUICK_EXPONENTS if scale is Scale.QUICK else L1_EXPONENTS


def pruning_grid(scale: Scale) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(weight decays, quality factors)."""
    return (QUICK_DECAYS, QUICK_QUALITIES) if scale is Scale.QUICK else (DECAYS, QUALITIES)


def scan_seeds(scale: Scale, seeds: int) -> int:
    """Seeds of each point of a scan with a method that stores whole matrices, which take minutes a run."""
    return seeds if scale is Scale.FULL else 1


def deep_r(scale: Scale, level: float, seed: int, epochs: int = EPOCHS, scope: str = "share") -> TrainJob:
    """DEEP R; ``scope``: where newborns go, by the layers' first share, uniform over the network, or in their layer."""
    own = {"scope": "layer"} if scope == "layer" else {"newborns": scope}
    words = f"deep-r-{level:g}" + ("" if epochs == EPOCHS else f"-e{epochs}") + ("" if scope == "share" else f"-{scope}")
    return _job(scale, words, seed, method="deep-r", connectivity=level, epochs=epochs, **own)


def fixed(scale: Scale, level: float, seed: int) -> TrainJob:
    """Fixed random connectivity, shared out as DEEP R starts."""
    return _job(scale, f"fixed-{level:g}", seed, method="fixed", connectivity=level)


def fixed_as(scale: Scale, words: str, counts: list[int], seed: int) -> TrainJob:
    """Fixed random connectivity with the count of each layer that another run, ``words``, has ended with."""
    own = {"method": "fixed", "budget": sum(counts), "allocation": ",".join(map(str, counts))}
    return _job(scale, f"fixed-as-{words}", seed, **own)


def deep_r_as(scale: Scale, words: str, budget: int, seed: int) -> TrainJob:
    """DEEP R with as many connections as another run, ``words``, had at most."""
    return _job(scale, f"deep-r-as-{words}", seed, method="deep-r", budget=budget)


def soft_words(start: float, p_min: float) -> str:
    return f"soft-deep-r-{start:g}-pmin{p_min:g}"


def soft(scale: Scale, start: float, p_min: float, seed: int) -> TrainJob:
    """soft-DEEP R in the paper's settings: α 1e-5, T = ηα²/18, θ_min by its rule."""
    theta_min = theta_min_for(p_min, temperature_from_l1(SOFT_L1, rate(scale)), SOFT_L1)
    own = {"method": "soft-deep-r", "connectivity": start, "l1": SOFT_L1, "noise": SOFT_L1 / 3, "theta_min": theta_min}
    return _job(scale, soft_words(start, p_min), seed, **own)


def dense(scale: Scale, seed: int) -> TrainJob:
    return _job(scale, "dense", seed, method="dense")


def l1_shrinkage(scale: Scale, exponent: int, seed: int) -> TrainJob:
    """ℓ1-shrinkage with α = 10^(−n/2)."""
    return _job(scale, f"l1-shrinkage-n{exponent}", seed, method="l1-shrinkage", l1=10 ** (-exponent / 2))


def pruning(scale: Scale, decay: float, quality: float, seed: int) -> TrainJob:
    return _job(scale, f"pruning-l2-{decay:g}-q{quality:g}", seed, method="pruning", weight_decay=decay, quality=quality)


def _job(scale: Scale, words: str, seed: int, **own: Any) -> TrainJob:
    data = "digits" if scale is Scale.QUICK else "mnist"
    common = {"data": data, "hidden": [300, 100], "bias": False, "lr": rate(scale), "batch_size": 10}
    return TrainJob(f"{data}/{words}-s{seed}", make_config(common, {"epochs": EPOCHS, "seed": seed}, own))


SETTINGS: dict[str, Any] = {
    "network": "784-300-100-10, no biases, ReLU",
    "optimiser": "SGD, η 0.05, batch 10, 10 epochs",
    "DEEP R": "α 1e-4, T = (η/2)·1e-12, newborns by the layers' first shares",
    "soft-DEEP R": "α 1e-5, T = ηα²/18, θ_min scanned",
}
