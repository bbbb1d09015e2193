"""The speech runs that several figures share: a bidirectional LSTM with 200 cells on real speech.

The paper trains for 40 epochs on TIMIT, which is licensed; with a copy of it, ``--full`` runs that if
``WIREBOUND_SPEECH=timit`` is set. The fitted scale has six epochs on openly licensed speech, the same for all methods.
"""

from __future__ import annotations

import os
from typing import Any

from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.task_job import TaskJob
from wirebound_lab.run.config import ConfigError
from wirebound_lab.tasks.phoneme_config import DATA, PhonemeConfig

LEVELS = (0.02, 0.05, 0.1)
SOFT_STARTS = (0.1,)
SOFT_L1 = 0.1
PRUNED = (0.1,)
L1_RATES = (0.3,)
DECAY = 1e-5  # ℓ2 of dense training and of pruning
_COMMON: dict[Scale, dict[str, Any]] = {
    Scale.QUICK: {"epochs": 2, "hidden": 32, "utterances": 96, "test_utterances": 64},
    Scale.FITTED: {"epochs": 6},
    Scale.FULL: {"epochs": 40},
}


def data() -> str:
    """The speech to train on: openly licensed, unless the environment names another."""
    name = os.environ.get("WIREBOUND_SPEECH", "speech")
    if name not in DATA:
        raise ConfigError(f"WIREBOUND_SPEECH (={name!r}) must be one of {', '.join(DATA)}")
    return name


def deep_r(scale: Scale, level: float, seed: int) -> TaskJob:
    """DEEP R as in the paper: α 0.03, T = 0."""
    return _job(scale, f"deep-r-{level:g}", seed, {"method": "deep-r", "connectivity": level})


def fixed(scale: Scale, level: float, seed: int) -> TaskJob:
    return _job(scale, f"fixed-{level:g}", seed, {"method": "fixed", "connectivity": level})


def dense(scale: Scale, seed: int) -> TaskJob:
    return _job(scale, "dense", seed, {"method": "dense", "weight_decay": DECAY})


def soft(scale: Scale, start: float, seed: int) -> TaskJob:
    own = {"method": "soft-deep-r", "connectivity": start, "l1": SOFT_L1}
    return _job(scale, f"soft-deep-r-{start:g}-l1-{SOFT_L1:g}", seed, own)


def pruning(scale: Scale, level: float, seed: int) -> TaskJob:
    own = {"method": "pruning", "connectivity": level, "weight_decay": DECAY}
    return _job(scale, f"pruning-{level:g}", seed, own)


def l1_shrinkage(scale: Scale, l1: float, seed: int) -> TaskJob:
    return _job(scale, f"l1-shrinkage-{l1:g}", seed, {"method": "l1-shrinkage", "l1": l1})


def _job(scale: Scale, words: str, seed: int, own: dict[str, Any]) -> TaskJob:
    name = data()
    prefix = name if scale is Scale.FITTED else f"{name}-{scale.value}"
    config = PhonemeConfig(**_COMMON[scale], **own, data=name, seed=seed).check()
    return TaskJob(f"{prefix}/{words}-s{seed}", "phonemes", config)


SETTINGS: dict[str, Any] = {
    "network": "bidirectional LSTM with 200 cells each way, softmax for every frame",
    "optimiser": "Adam, η 0.01, ε 1e-4, batch 32",
    "inputs": "12 MFCC and log energy with first and second differences, 10 ms frames",
    "error": "wrong frames of the test part, at the epoch with the least error on 5 % of the training utterances",
    "DEEP R": "α 0.03, T 0; matrices start at 1.8, 0.6 and 6 times the connectivity",
}
