"""Where a run of the speech experiment stands, and ``summary.json``, the end of it in one object."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from typing import Any

import torch

from wirebound.data import SequenceDataset
from wirebound.experiments.phoneme_config import PhonemeConfig
from wirebound.ledger import ledger
from wirebound.methods import Method
from wirebound.nn.part import wirings
from wirebound.ops import library
from wirebound.train.summary import layer_active
from wirebound.train.window import Tally
from wirebound.version import __version__


@dataclass
class Progress:
    """Where a run stands after an epoch: what a checkpoint keeps beside model, optimiser and method."""

    initial: list[int]  # connections of each matrix before the first step
    epoch: int = 0  # epochs that are done
    active_min: int = 0
    active_max: int = 0
    best_epoch: int = 0  # the one with the least error on the validation part
    best_validation_error: float = 1.0
    best_test_error: float = 1.0  # at that epoch: what the paper reports
    test_error: float = 1.0  # after the last epoch
    test_loss: float = 0.0
    validation_error: float = 1.0
    seconds: float = 0.0
    metrics: int = 0  # bytes of metrics.jsonl
    whole: Tally = field(default_factory=Tally)  # of the epoch that is running


def summarise(config: PhonemeConfig, data: SequenceDataset, method: Method, progress: Progress) -> dict[str, Any]:
    shapes = method.shapes
    possible = sum(shape.possible for shape in shapes)
    budget = None if config.method == "dense" else sum(w.budget for w in wirings(method.model))
    layers = [
        {"name": s.name, "shape": [s.n_out, s.n_in], "possible": s.possible, "initial": a, "final": b}
        for s, a, b in zip(shapes, progress.initial, layer_active(method.model, method), strict=True)
    ]
    return {
        "method": config.method,
        "data": config.data,
        "evaluated_on": "test",
        "seed": config.seed,
        "budget": budget,
        "possible": possible,
        "connectivity": (possible if budget is None else budget) / possible,
        "max_active": progress.active_max,
        "min_active": progress.active_min,
        "steps": method.steps,
        "epochs": config.epochs,
        "seconds": round(progress.seconds, 3),
        "test_accuracy": 1 - progress.test_error,
        "test_error": progress.test_error,
        "test_loss": progress.test_loss,
        "validation_error": progress.validation_error,
        "best_epoch": progress.best_epoch,
        "best_validation_error": progress.best_validation_error,
        "test_error_at_best_validation": progress.best_test_error,
        "utterances": {part: len(data.part(part)) for part in ("train", "validation", "test")},
        "classes": data.classes,
        "layers": layers,
        "ledger": [entry.__dict__ for entry in ledger(method.model, method).entries],
        "versions": {
            "wirebound": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "kernels": library.isa() or f"none ({library.reason()})",
        },
    }
