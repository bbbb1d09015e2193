"""The CIFAR-10 runs that several figures share.

The paper trains for a million steps (2,558 epochs), which is days on a small machine: that is the full scale. The fitted
scale has five epochs, the same for all methods, with half a cosine, momentum and first weights as strong as in the
dense network: without these, a sparse network hardly begins to learn in so few steps. η was chosen by the loss on
training images (``docs/reproduce.md``).
"""

from __future__ import annotations

from typing import Any

from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.task_job import TaskRuns

LEVELS = (0.05, 0.2)
FIXED_LEVELS = SOFT_STARTS = PRUNED = (0.05,)
L1_RATES = (2e-3,)
_SHORT = {"task": "cifar", "momentum": 0.9, "init": "scaled"}
RUNS = TaskRuns(
    folder=lambda: "cifar",
    common={
        Scale.QUICK: {**_SHORT, "epochs": 1, "lr": 0.02, "batch_size": 32, "images": 640, "test_images": 500},
        Scale.FITTED: {**_SHORT, "epochs": 5, "lr": 0.05},
        Scale.FULL: {"task": "cifar", "epochs": 2558, "lr": 0.1, "schedule": "paper", "evaluate_every": 10},
    },
    soft_l1=1e-4,
)
deep_r, fixed, dense = RUNS.deep_r, RUNS.fixed, RUNS.dense
soft, pruning, l1_shrinkage = RUNS.soft, RUNS.pruning, RUNS.l1_shrinkage


def scan_seeds(scale: Scale, seeds: int) -> int:
    """Seeds of the methods that store whole matrices, which take a quarter of an hour a run."""
    return seeds if scale is Scale.FULL else 1


SETTINGS: dict[str, Any] = {
    "network": "conv 5×5×3×64, conv 5×5×64×64, 2304→384, 384→192, 192→10 (TensorFlow 1.3 tutorial)",
    "data": "24×24 crops, flips, contrast, standardised; weights evaluated as moving averages",
    "budget": "over the second convolution and the two hidden layers; the first convolution and the output are dense",
    "DEEP R": "α 1e-7, 1e-6, 1e-9 (from input to output), T = ηα²/18, falling with η",
}
