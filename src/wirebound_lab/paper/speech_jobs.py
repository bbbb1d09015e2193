"""The speech runs that several figures share: a bidirectional LSTM with 200 cells on real speech.

The paper trains for 40 epochs on TIMIT, which is licensed; with a copy of it, ``--full`` runs that if
``WIREBOUND_SPEECH=timit`` is set. The fitted scale has six epochs on openly licensed speech, the same for all methods.
"""

from __future__ import annotations

import os
from typing import Any

from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.job import TrainJob
from wirebound_lab.paper.task_job import TaskRuns
from wirebound_lab.run.config import ConfigError
from wirebound_lab.tasks.phonemes import DATA

LEVELS = (0.02, 0.05, 0.1)
SOFT_STARTS = PRUNED = (0.1,)
L1_RATES = (0.3,)
DECAY = 1e-5  # ℓ2 of dense training and of pruning
_COMMON: dict[Scale, dict[str, Any]] = {
    Scale.QUICK: {"epochs": 2, "hidden": [32], "utterances": 96, "test_utterances": 64},
    Scale.FITTED: {"epochs": 6},
    Scale.FULL: {"epochs": 40},
}


def data() -> str:
    """The speech to train on: openly licensed, unless the environment names another."""
    name = os.environ.get("WIREBOUND_SPEECH", "speech")
    if name not in DATA:
        raise ConfigError(f"WIREBOUND_SPEECH (={name!r}) must be one of {', '.join(DATA)}")
    return name


class _SpeechRuns(TaskRuns):
    def _job(self, scale: Scale, words: str, seed: int, **own: Any) -> TrainJob:
        return super()._job(scale, words, seed, task="phonemes", data=data(), **own)


RUNS = _SpeechRuns(data, _COMMON, soft_l1=0.1, stored={"weight_decay": DECAY})
deep_r, fixed, dense = RUNS.deep_r, RUNS.fixed, RUNS.dense
soft, pruning, l1_shrinkage = RUNS.soft, RUNS.pruning, RUNS.l1_shrinkage

SETTINGS: dict[str, Any] = {
    "network": "bidirectional LSTM with 200 cells each way, softmax for every frame",
    "optimiser": "Adam, η 0.01, ε 1e-4, batch 32",
    "inputs": "12 MFCC and log energy with first and second differences, 10 ms frames",
    "error": "wrong frames of the test part, at the epoch with the least error on 5 % of the training utterances",
    "DEEP R": "α 0.03, T 0; matrices start at 1.8, 0.6 and 6 times the connectivity",
}
