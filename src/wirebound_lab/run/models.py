"""The networks and optimisers that the settings of a run name."""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn, optim

from wirebound import schedule
from wirebound.methods import (
    METHODS,
    SET,
    ConstantRate,
    DeepR,
    L1Shrinkage,
    MagnitudePruning,
    Method,
    RigL,
    SoftDeepR,
)
from wirebound.nn.sparsify import sparsify
from wirebound.wiring import Constraints
from wirebound.wiring.budget import read_allocation
from wirebound_lab.run.config import ConfigError, TrainConfig

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def perceptron(sizes: list[int], activation: str, bias: bool, device: str) -> nn.Sequential:
    """Linear layers of these sizes with an activation between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(sizes):
        layers += [nn.Linear(n_in, n_out, bias=bias, device=device), _ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def build_model(config: TrainConfig, inputs: int, classes: int) -> nn.Module:
    """The network of a run: sparse from the start, or plain for methods that store their matrices in full."""
    sizes = [inputs, *config.hidden, classes]
    if METHODS[config.method].plain:
        return _drawn(perceptron(sizes, config.activation, config.bias, "meta"), config.seed)
    model = perceptron(sizes, config.activation, config.bias, "meta")
    return sparsify(
        model,
        config.connectivity,
        config.budget,
        scope=config.scope,
        allocation=read_allocation(config.allocation),
        init=config.init,
        gain=config.gain,
        constraints=_constraints(config),
        seed=config.seed,
    )


def _drawn(model: nn.Sequential, seed: int) -> nn.Sequential:
    """The first weights that torch gives to linear layers after ``manual_seed(seed)``, from a generator of their own: the
    global one is the caller's, and other threads draw from it."""
    generator = torch.Generator().manual_seed(seed)
    model = model.to_empty(device="cpu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.in_features)
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return model


def _constraints(config: TrainConfig) -> Constraints | None:
    return Constraints(config.max_fan_in, config.max_fan_out, config.dale) or None


def build_optimizer(config: TrainConfig, model: nn.Module) -> optim.Optimizer:
    parameters, decay = list(model.parameters()), config.weight_decay
    match config.optimizer:
        case "sgd":
            return optim.SGD(parameters, lr=config.lr, weight_decay=decay)
        case "momentum" | "nesterov":
            nesterov = config.optimizer == "nesterov"
            return optim.SGD(
                parameters, lr=config.lr, momentum=config.momentum, nesterov=nesterov, weight_decay=decay
            )
        case "adam":
            return optim.Adam(parameters, lr=config.lr, eps=config.eps, weight_decay=decay)
        case "adamw":
            return optim.AdamW(parameters, lr=config.lr, eps=config.eps, weight_decay=decay)
        case "rmsprop":
            return optim.RMSprop(
                parameters, lr=config.lr, momentum=config.momentum, eps=config.eps, weight_decay=decay
            )
    raise ConfigError(f"optimizer (={config.optimizer!r}) is unknown")


def build_method(
    config: TrainConfig, model: nn.Module, optimizer: optim.Optimizer, per_epoch: int | None = None
) -> Method:
    """The method of a run; ``per_epoch``, the steps of an epoch, is what schedules over a run go by."""
    kind = METHODS[config.method]
    temperature = schedule.noise_amplitude(config.noise) if config.temperature is None else config.temperature
    if kind is DeepR:
        return DeepR(
            model,
            optimizer,
            l1=config.l1,
            temperature=temperature,
            rewire_every=config.rewire_every,
            newborns=config.newborns,
        )
    if kind is SoftDeepR:
        return SoftDeepR(
            model,
            optimizer,
            l1=config.l1,
            temperature=temperature,
            theta_min=config.theta_min,
            connectivity=config.connectivity,
            budget=config.budget,
            allocation=read_allocation(config.allocation),
            init=config.init,
            gain=config.gain,
            seed=config.seed,
        )
    if kind is ConstantRate:
        return ConstantRate(model, optimizer, rate=config.rate, l1=config.l1, temperature=temperature)
    if kind is L1Shrinkage:
        return L1Shrinkage(model, optimizer, l1=config.l1)
    if kind is MagnitudePruning:
        if per_epoch is None:
            raise ConfigError(f"method (={config.method!r}) must know how many steps the run has")
        return MagnitudePruning(
            model,
            optimizer,
            total_steps=per_epoch * config.epochs,
            quality=config.quality,
            connectivity=config.connectivity,
            budget=config.budget,
        )
    if kind in (SET, RigL):
        return _build_rival(config, model, optimizer, per_epoch)
    return kind(model, optimizer)  # type: ignore[call-arg]


def _build_rival(
    config: TrainConfig, model: nn.Module, optimizer: optim.Optimizer, per_epoch: int | None
) -> Method:
    steps = None if per_epoch is None else per_epoch * config.epochs
    if config.method == "set":
        # Not after the last step: its newborns would never be trained.
        return SET(model, optimizer, zeta=config.fraction, every=config.replace_every or per_epoch or 100, until=steps)
    until = None if steps is None else max(1, round(config.replace_until * steps))
    return RigL(model, optimizer, fraction=config.fraction, every=config.replace_every or 100, until=until)
