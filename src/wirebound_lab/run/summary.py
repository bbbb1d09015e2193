"""``summary.json``: the end of a run in one object."""

from __future__ import annotations

import platform
from typing import Any

import torch

from wirebound.distributed import world_size
from wirebound.ledger import ledger
from wirebound.methods import METHODS
from wirebound.nn.sparse_layer import wirings
from wirebound.ops import library
from wirebound.version import __version__
from wirebound_lab.run.config import RunConfig
from wirebound_lab.run.running import TrainingRun

# What a model's file says about its training: what the settings decide, and nothing that a clock or a machine does.
_ON_THE_CARD = ("evaluated_on", "test_accuracy", "test_loss", "steps", "skipped_steps", "min_active", "max_active")


def summarise(run: TrainingRun) -> dict[str, Any]:
    run.measure()
    config, method, state = run.config, run.method, run.state
    possible, active = sum(shape.possible for shape in method.shapes), method.layer_active()
    budget = sum(w.budget for w in wirings(run.model)) if method.promises_budget else None
    measured = state.active_max if method.counts == "highest" else sum(active)
    connectivity = (measured if budget is None else budget) / possible
    layers = [
        {"name": s.name, "shape": [s.n_out, s.n_in], "possible": s.possible, "initial": a, "final": b}
        for s, a, b in zip(method.shapes, state.initial, active, strict=True)
    ]
    return {
        "task": config.task,
        "method": config.method,
        "title": METHODS[config.method].title,
        **run.task.facts(connectivity),
        "seed": config.seed,
        "budget": budget,
        "possible": possible,
        "connectivity": connectivity,
        "max_active": state.active_max,
        "min_active": state.active_min,
        "steps": run.task.steps,
        "skipped_steps": state.skipped,
        "epochs": config.epochs,
        "seconds": round(state.seconds, 3),
        "training_seconds": round(state.training_seconds, 3),
        **state.figures,
        "path": run.engine.name,
        "layers": layers,
        "ledger": [entry.__dict__ for entry in (*ledger(run.model, method).entries, *run.observer.entries())],
        "versions": {
            "wirebound": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "kernels": library.isa() or f"none ({library.reason()})",
        },
        "processes": world_size(),
    }


def model_card(config: RunConfig, summary: dict[str, Any]) -> dict[str, Any]:
    """How a model was trained and what came out, to be kept in its own file: files are moved without their folders."""
    return {"config": config.identity(), "result": {name: summary[name] for name in _ON_THE_CARD}}
