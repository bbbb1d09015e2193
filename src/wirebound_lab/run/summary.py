"""``summary.json``: the end of a run in one object."""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import nn

from wirebound.ledger import ledger
from wirebound.methods import Method
from wirebound.nn.sparse_layer import wirings
from wirebound.ops import library
from wirebound.version import __version__
from wirebound_lab.run.config import TrainConfig
from wirebound_lab.run.paper import find_claim
from wirebound_lab.run.resume import FREE
from wirebound_lab.run.run_state import RunState


def summarise(
    config: TrainConfig, model: nn.Module, method: Method, path: str, steps: int, state: RunState
) -> dict[str, Any]:
    shapes = method.shapes
    possible = sum(shape.possible for shape in shapes)
    active = method.layer_active()
    budget = sum(w.budget for w in wirings(model)) if method.promises_budget else None
    measured = state.active_max if method.counts == "highest" else sum(active)
    connectivity = (measured if budget is None else budget) / possible
    layers = [
        {"name": s.name, "shape": [s.n_out, s.n_in], "possible": s.possible, "initial": a, "final": b}
        for s, a, b in zip(shapes, state.initial, active, strict=True)
    ]
    summary = {
        "method": config.method,
        "data": config.data,
        "evaluated_on": "validation" if config.validation else "test",
        "seed": config.seed,
        "budget": budget,
        "possible": possible,
        "connectivity": connectivity,
        "max_active": state.active_max,
        "min_active": state.active_min,
        "steps": steps,
        "skipped_steps": state.skipped,
        "epochs": config.epochs,
        "seconds": round(state.seconds, 3),
        "training_seconds": round(state.training_seconds, 3),
        "test_accuracy": state.accuracy,
        "test_loss": state.test_loss,
        "path": path,
        "layers": layers,
        "ledger": [entry.__dict__ for entry in ledger(model, method).entries],
        "versions": {
            "wirebound": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "kernels": library.isa() or f"none ({library.reason()})",
        },
    }
    claim = find_claim(config, connectivity)
    if claim is not None:
        summary["paper"] = claim
    return summary


# What a model's file says about its training: what the settings decide, and nothing that a clock or a machine does.
_ON_THE_CARD = ("evaluated_on", "test_accuracy", "test_loss", "steps", "skipped_steps", "min_active", "max_active")


def model_card(config: TrainConfig, summary: dict[str, Any]) -> dict[str, Any]:
    """How a model was trained and what came out, to be kept in its own file: files are moved without their folders."""
    settings = {name: value for name, value in config.as_dict().items() if name not in FREE}
    return {"config": settings, "result": {name: summary[name] for name in _ON_THE_CARD}}
