"""The networks of the training step, and the engine that runs them fused."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from torch import nn

from wirebound.engine.modules import Engine
from wirebound.methods import Method
from wirebound_lab.bench.examples import SCALE, Examples
from wirebound_lab.run.config import TrainConfig
from wirebound_lab.run.models import build_method, build_model, build_optimizer

INPUTS, CLASSES, BATCH, CONNECTIVITY, LR = 784, 10, 10, 0.01, 0.05


def build(hidden: Sequence[int], method: str, inputs: int = INPUTS) -> tuple[nn.Module, Method]:
    """A network with the paper's settings: SGD, η = 0.05, ℓ1, noise, rewiring in every step."""
    config = TrainConfig(method=method, connectivity=CONNECTIVITY, hidden=list(hidden))
    model = build_model(config, inputs, CLASSES)
    return model, build_method(config, model, build_optimizer(config, model))


def fused_engine(model: nn.Module, method: Method, examples: Examples) -> Engine | str:
    """The fused engine for this model, or why there is none."""
    try:
        fused = importlib.import_module("wirebound.engine.fused")
        reason = fused.why_not_fused(model, method)
        if reason:
            return str(reason)
        engine: Engine = fused.FusedEngine(model, method, examples.pixels, examples.y, scale=SCALE)
    except (ImportError, AttributeError) as error:
        return str(error)
    return engine
