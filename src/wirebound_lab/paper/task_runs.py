"""The runs that several figures share: settings of each task and method, and the points at which a method is run.

The full scale is the paper's; what the fitted and the quick scale change, and why, is in ``docs/reproduce.md``.
"""

import itertools
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirebound.methods.soft_rules import temperature_from_l1, theta_min_for
from wirebound_lab.paper.figure import Runs, Scale
from wirebound_lab.paper.job import TrainJob
from wirebound_lab.run.branch import Trunk
from wirebound_lab.run.config import PRESETS, ConfigError, RunConfig, make_config
from wirebound_lab.tasks.phonemes import DATA

EPOCHS = 10  # on MNIST
SCANNED = ("soft-deep-r", "pruning", "l1-shrinkage")  # methods that store whole matrices: the slow ones
_PROTOCOL_SEEDS = 3
Points = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class TaskRuns(ABC):
    """The runs of one task, each at a point of the scan of its method: a connectivity, α, or a tuple of settings."""

    points: Points
    settings: Mapping[str, str]  # as a page shows them
    most_seeds: int  # at each point, below the full scale
    most_scanned: int  # and of the methods in SCANNED
    quick_points: Points = field(default_factory=dict)  # instead of ``points``
    # Seeds in all, by method and point, where fewer left a claim undecided: the protocol adds two, then five.
    more_seeds: Mapping[tuple[str, Any], int] = field(default_factory=dict)

    def runs(self, scale: Scale, seeds: int, methods: Sequence[str]) -> Runs:
        every = {**self.points, **(self.quick_points if scale is Scale.QUICK else {})}
        found: dict[str, dict[Any, list[TrainJob]]] = {}
        for method in methods:
            counts = {at: self.seeds(scale, seeds, method, at) for at in every[method]}
            found[method] = {at: [self.job(scale, method, at, seed) for seed in range(count)] for at, count in counts.items()}
        return found

    def seeds(self, scale: Scale, seeds: int, method: str, at: Any) -> int:
        """How many seeds can be afforded: all, if all is asked for. Seeds are added to the protocol's three, not to fewer."""
        if scale is Scale.FULL:
            return seeds
        affordable = min(seeds, self.most_scanned if method in SCANNED else self.most_seeds)
        added = scale is Scale.FITTED and seeds >= _PROTOCOL_SEEDS
        return max(affordable, self.more_seeds.get((method, at), 0)) if added else affordable

    @abstractmethod
    def job(self, scale: Scale, method: str, at: Any, seed: int) -> TrainJob:
        """The run of a method at one point."""


class MnistRuns(TaskRuns):
    def job(self, scale: Scale, method: str, at: Any, seed: int) -> TrainJob:
        words, own = f"{method}-{at}", {"connectivity": at}
        if method == "dense":
            words, own = method, {}
        elif method == "deep-r-chosen":
            own["l1"], method = CHOSEN_L1[at], "deep-r"
        elif method == "soft-deep-r":  # the paper's settings: α 1e-5, T = ηα²/18, θ_min by its rule
            l1 = 1e-5
            theta_min = theta_min_for(at[1], temperature_from_l1(l1, _mnist_rate(scale)), l1)
            words, own = soft_words(*at), {"connectivity": at[0], "l1": l1, "noise": l1 / 3, "theta_min": theta_min}
        elif method == "pruning":
            words, own = f"pruning-l2-{at[0]:g}-q{at[1]:g}", {"weight_decay": at[0], "quality": at[1]}
        elif method == "l1-shrinkage":  # α = 10^(−n/2)
            words, own = f"l1-shrinkage-n{at}", {"l1": 10 ** (-at / 2)}
        return mnist_job(scale, words, seed, method=method, **own)


def _mnist_rate(scale: Scale) -> float:
    """η: the paper's; the digits have a fortieth of the steps and need a higher one."""
    return 0.5 if scale is Scale.QUICK else 0.05


def soft_words(start: float, p_min: float) -> str:
    return f"soft-deep-r-{start:g}-pmin{p_min:g}"


def mnist_job(scale: Scale, words: str, seed: int, **own: Any) -> TrainJob:
    data = "digits" if scale is Scale.QUICK else "mnist"
    common = {"data": data, "hidden": [300, 100], "bias": False, "lr": _mnist_rate(scale), "batch_size": 10}
    return TrainJob(f"{data}/{words}-s{seed}", make_config(PRESETS["paper"], common, {"epochs": EPOCHS, "seed": seed}, own))


# α for each connectivity, by ``search`` on held-out images; the paper's 1e-4 belongs to 1 %.
CHOSEN_L1 = {0.003: 3.16e-5, 0.006: 1e-4, 0.01: 1e-4, 0.013: 1e-4, 0.025: 1e-4, 0.05: 3.16e-5, 0.1: 1e-5}
_LEVELS = (0.003, 0.006, 0.01, 0.013, 0.025, 0.05, 0.1)
_QUICK_LEVELS = (0.01, 0.05, 0.1)
MNIST = MnistRuns(
    points={
        "deep-r": _LEVELS, "deep-r-chosen": _LEVELS, "fixed": _LEVELS, "dense": (1.0,), "l1-shrinkage": range(4, 13),
        # Connectivity at the start, and the p_min from which θ_min follows. The highest connectivity that it meets is
        # far above p_min, because the rule leaves gradients out.
        "soft-deep-r": ((0.003, 1e-4), (0.003, 3e-4), (0.01, 3e-4), (0.01, 1e-3), (0.01, 1e-2)),
        "pruning": tuple(itertools.product((0.0, 1e-4, 1e-3), (0.5, 1.0, 1.5, 2.0))),  # weight decay, quality factor
    },
    quick_points={
        "deep-r": _QUICK_LEVELS, "deep-r-chosen": _QUICK_LEVELS, "fixed": _QUICK_LEVELS, "l1-shrinkage": (6, 9),
        "soft-deep-r": ((0.01, 1e-3), (0.05, 1e-2)), "pruning": tuple(itertools.product((0.0, 1e-3), (0.5, 1.5))),
    },
    settings={
        "network": "784-300-100-10, no biases, ReLU",
        "optimiser": "SGD, η 0.05, batch 10, 10 epochs",
        "DEEP R": "α 1e-4, T = (η/2)·1e-12, newborns by the layers' first shares",
        "soft-DEEP R": "α 1e-5, T = ηα²/18, θ_min scanned",
    },
    most_seeds=sys.maxsize, most_scanned=sys.maxsize,
)  # fmt: skip


@dataclass(frozen=True)
class LongRuns(TaskRuns):
    """Runs that take minutes each. A method's ``own`` settings are those that ``search`` found, below the full scale."""

    common: Mapping[Scale, Mapping[str, Any]] = field(default_factory=dict)  # settings of all runs at each scale
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of a method, at the quick and the fitted scale
    own_at: Mapping[tuple[str, Any], Mapping[str, Any]] = field(default_factory=dict)  # of a method at a point, at the fitted scale
    full: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of a method, at the full scale

    def job(self, scale: Scale, method: str, at: Any, seed: int, **more: Any) -> TrainJob:
        folder, settings = "cifar", dict(self.common[scale])
        if settings["task"] == "phonemes":
            folder = settings["data"] = speech_data()
        settings |= (self.full if scale is Scale.FULL else self.own).get(method, {})
        if scale is Scale.FITTED:
            settings |= self.own_at.get((method, at), {})
        if method != "dense":
            settings["l1" if method == "l1-shrinkage" else "connectivity"] = at
        folder += "" if scale is Scale.FITTED else f"-{scale.value}"
        words = [method, *([] if method == "dense" else [f"{at:g}"]), *(f"{key}-{value}" for key, value in more.items())]
        config = make_config(settings, more, {"method": method, "seed": seed})
        return TrainJob(f"{folder}/{'-'.join(words)}-s{seed}", config, self._trunk(config) if method == "pruning" else None)

    def _trunk(self, config: RunConfig) -> Trunk | None:
        """What runs of pruning of one seed share: the whole epochs before the first cut, after a third of the steps."""
        epochs = (config.epochs - 1) // 3
        first = config.replace(connectivity=self.points["pruning"][0])
        return Trunk(f"pruning-before-cuts-s{config.seed}", first, epochs) if epochs else None


def speech_data() -> str:
    """The speech to train on: openly licensed, unless the environment names another."""
    name = os.environ.get("WIREBOUND_SPEECH", "speech")
    if name not in DATA:
        raise ConfigError(f"WIREBOUND_SPEECH (={name!r}) must be one of {', '.join(DATA)}")
    return name


# The tutorial's decay of the average belongs to a million steps: it would reach back over half of these runs.
_SHORT = {"task": "cifar", "momentum": 0.9, "init": "scaled", "average": 0.999}
CIFAR = LongRuns(
    points={
        "deep-r": (0.05, 0.2), "fixed": (0.05,), "dense": (1.0,), "soft-deep-r": (0.05, 0.2), "pruning": (0.05, 0.2),
        "l1-shrinkage": (1e-3, 3e-3),
    },
    quick_points={"soft-deep-r": (0.05,), "pruning": (0.05,), "l1-shrinkage": (1e-3,)},
    common={
        Scale.QUICK: {**_SHORT, "epochs": 1, "lr": 0.02, "batch_size": 32, "images": 640, "test_images": 500},
        Scale.FITTED: {**_SHORT, "epochs": 60, "lr": 0.05, "evaluate_every": 3},
        Scale.FULL: {"task": "cifar", "epochs": 2558, "lr": 0.1, "schedule": "paper", "evaluate_every": 10},
    },
    own={"deep-r": {"l1": 3e-4}, "soft-deep-r": {"l1": 1e-4}}, own_at={("deep-r", 0.2): {"l1": 1e-4}},
    full={"soft-deep-r": {"l1": 1e-4}},
    settings={
        "network": "conv 5×5×3×64, conv 5×5×64×64, 2304→384, 384→192, 192→10 (TensorFlow 1.3 tutorial)",
        "data": "24×24 crops, flips, contrast, standardised; weights evaluated as moving averages",
        "budget": "over the second convolution and the two hidden layers; the first convolution and the output are dense",
        "DEEP R": "one α for the three matrices, 3e-4 at 5 % and 1e-4 at 20 %, chosen on held-out images (the paper's 1e-7, 1e-6, 1e-9 are for a million steps)",
    },
    most_seeds=sys.maxsize, most_scanned=2,
    more_seeds={("deep-r", 0.2): 5, ("dense", 1.0): 5},
)  # fmt: skip
SPEECH = LongRuns(
    points={
        "deep-r": (0.02, 0.05, 0.1, 0.2), "fixed": (0.02, 0.05, 0.1, 0.2), "dense": (1.0,),
        "soft-deep-r": (0.02, 0.05, 0.1, 0.2), "pruning": (0.02, 0.05, 0.1, 0.2), "l1-shrinkage": (0.2, 0.3, 0.4, 0.6),
    },
    quick_points={method: (0.1,) for method in ("deep-r", "fixed", "soft-deep-r", "pruning")} | {"l1-shrinkage": (0.3,)},
    common={
        Scale.QUICK: {"task": "phonemes", "epochs": 2, "hidden": [32], "utterances": 96, "test_utterances": 64},
        Scale.FITTED: {"task": "phonemes", "epochs": 40},
        Scale.FULL: {"task": "phonemes", "epochs": 40},
    },
    own={"soft-deep-r": {"l1": 0.03}, "dense": {"weight_decay": 1e-4}, "pruning": {"weight_decay": 1e-4}},
    full={"soft-deep-r": {"l1": 0.03}, "dense": {"weight_decay": 1e-4}, "pruning": {"weight_decay": 1e-4}},
    settings={
        "network": "bidirectional LSTM with 200 cells each way, softmax for every frame",
        "optimiser": "Adam, η 0.01, ε 1e-4, batch 32",
        "inputs": "12 MFCC and log energy with first and second differences, 10 ms frames",
        "error": "wrong frames of the test part, at the epoch with the least error on 5 % of the training speakers",
        "DEEP R": "α 0.03, T 0; matrices start at 1.8, 0.6 and 6 times the connectivity",
        "dense and pruning": "ℓ2 1e-4, chosen on validation data",
    },
    most_seeds=sys.maxsize, most_scanned=sys.maxsize,
    more_seeds={("dense", 1.0): 10, ("deep-r", 0.1): 10, ("deep-r", 0.2): 5, ("pruning", 0.1): 5, ("pruning", 0.2): 5},
)  # fmt: skip
