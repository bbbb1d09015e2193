"""The CIFAR-10 runs that several figures share.

The paper trains for a million steps (2,558 epochs), which is days on a small machine: that is the full scale. The fitted
scale has five epochs, the same for all methods, with half a cosine, momentum and first weights as strong as in the
dense network: without these, a sparse network hardly begins to learn in so few steps. η was chosen by the loss on
training images (``docs/reproduce.md``).
"""

from __future__ import annotations

from typing import Any

from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.task_job import TaskJob
from wirebound_lab.tasks.cifar import CifarConfig

LEVELS = (0.05, 0.2)
FIXED_LEVELS = (0.05,)
SOFT_STARTS = (0.05,)
SOFT_L1 = 1e-4
PRUNED = (0.05,)
L1_RATES = (2e-3,)
_COMMON: dict[Scale, dict[str, Any]] = {
    Scale.QUICK: {
        "epochs": 1,
        "images": 640,
        "batch_size": 32,
        "lr": 0.02,
        "momentum": 0.9,
        "init": "scaled",
        "test_images": 500,
    },
    Scale.FITTED: {"epochs": 5, "lr": 0.05, "momentum": 0.9, "init": "scaled"},
    Scale.FULL: {"epochs": 2558, "lr": 0.1, "schedule": "paper", "evaluate_every": 10},
}


def scan_seeds(scale: Scale, seeds: int) -> int:
    """Seeds of the methods that store whole matrices, which take a quarter of an hour a run."""
    return seeds if scale is Scale.FULL else 1


def deep_r(scale: Scale, level: float, seed: int) -> TaskJob:
    """DEEP R with the paper's α for each matrix and T = ηα²/18."""
    return _job(scale, f"deep-r-{level:g}", seed, {"method": "deep-r", "connectivity": level})


def fixed(scale: Scale, level: float, seed: int) -> TaskJob:
    return _job(scale, f"fixed-{level:g}", seed, {"method": "fixed", "connectivity": level})


def dense(scale: Scale, seed: int) -> TaskJob:
    return _job(scale, "dense", seed, {"method": "dense"})


def soft(scale: Scale, start: float, seed: int) -> TaskJob:
    """soft-DEEP R by the paper's rule α = 3√(2T/η) = −θ_min/3."""
    own = {"method": "soft-deep-r", "connectivity": start, "l1": SOFT_L1}
    return _job(scale, f"soft-deep-r-{start:g}-l1-{SOFT_L1:g}", seed, own)


def pruning(scale: Scale, level: float, seed: int) -> TaskJob:
    """Pruning to a connectivity, in two cuts at a third and two thirds of the training."""
    return _job(scale, f"pruning-{level:g}", seed, {"method": "pruning", "connectivity": level})


def l1_shrinkage(scale: Scale, l1: float, seed: int) -> TaskJob:
    return _job(scale, f"l1-shrinkage-{l1:g}", seed, {"method": "l1-shrinkage", "l1": l1})


def _job(scale: Scale, words: str, seed: int, own: dict[str, Any]) -> TaskJob:
    prefix = "cifar" if scale is Scale.FITTED else f"cifar-{scale.value}"
    return TaskJob(f"{prefix}/{words}-s{seed}", "cifar", CifarConfig(**_COMMON[scale], **own, seed=seed).check())


SETTINGS: dict[str, Any] = {
    "network": "conv 5×5×3×64, conv 5×5×64×64, 2304→384, 384→192, 192→10 (TensorFlow 1.3 tutorial)",
    "data": "24×24 crops, flips, contrast, standardised; weights evaluated as moving averages",
    "budget": "over the second convolution and the two hidden layers; the first convolution and the output are dense",
    "DEEP R": "α 1e-7, 1e-6, 1e-9 (from input to output), T = ηα²/18, falling with η",
}
