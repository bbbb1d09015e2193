"""The network, the optimiser and the method that the settings of a run name."""

from __future__ import annotations

from typing import Any

from torch import nn, optim

from wirebound.methods import METHODS, Method, RunLength
from wirebound.nn.perceptron import draw_weights, perceptron
from wirebound.nn.sparsify import sparsify
from wirebound.optim.named import make_optimizer
from wirebound.wiring import Constraints
from wirebound.wiring.budget import read_allocation
from wirebound_lab.run.config import ConfigError, RunConfig


def build_model(config: RunConfig, inputs: int, classes: int) -> nn.Module:
    """The perceptron of a run: sparse from the start, or plain for methods that store their matrices in full."""
    model = perceptron([inputs, *config.hidden, classes], config.activation, config.bias, "meta")
    if METHODS[config.method].plain:
        return draw_weights(model, config.seed)
    start = {name: getattr(config, name) for name in ("scope", "init", "gain", "seed")}
    constraints = Constraints(config.max_fan_in, config.max_fan_out, config.dale) or None
    allocation = read_allocation(config.allocation)
    return sparsify(model, config.connectivity, config.budget, allocation=allocation, constraints=constraints, **start)


def build_optimizer(config: RunConfig, model: nn.Module, **other: Any) -> optim.Optimizer:
    """The optimiser that the settings name; ``other`` values stand for theirs."""
    values = {name: getattr(config, name) for name in ("lr", "momentum", "weight_decay", "eps")} | other
    return make_optimizer(config.optimizer, model.parameters(), **values)


def build_method(
    config: RunConfig, model: nn.Module, optimizer: optim.Optimizer, per_epoch: int | None = None, **other: Any
) -> Method:
    """The method of a run; ``per_epoch``, the steps of an epoch, is what schedules over a run go by."""
    length = RunLength(per_epoch, config.epochs)
    try:
        return METHODS[config.method].from_settings(model, optimizer, {**config.as_dict(), **other}, length)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error
