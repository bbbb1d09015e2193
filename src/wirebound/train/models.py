"""The networks and optimisers that the settings of a run name."""

from __future__ import annotations

import itertools

import torch
from torch import nn, optim

from wirebound.core import schedule
from wirebound.methods import DeepR, Dense, Fixed, Method
from wirebound.nn.sparsify import sparsify
from wirebound.train.config import ConfigError, TrainConfig
from wirebound.wiring.budget import read_allocation

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def perceptron(sizes: list[int], activation: str, bias: bool, device: str) -> nn.Sequential:
    """Linear layers of these sizes with an activation between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(sizes):
        layers += [nn.Linear(n_in, n_out, bias=bias, device=device), _ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def build_model(config: TrainConfig, inputs: int, classes: int) -> nn.Module:
    """The network of a run: sparse from the start, or dense for the dense method."""
    sizes = [inputs, *config.hidden, classes]
    if config.method == "dense":
        # fork_rng: the caller's global generator is not ours to move.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return perceptron(sizes, config.activation, config.bias, "cpu")
    model = perceptron(sizes, config.activation, config.bias, "meta")
    return sparsify(
        model,
        config.connectivity,
        config.budget,
        scope=config.scope,
        allocation=read_allocation(config.allocation),
        init=config.init,
        gain=config.gain,
        seed=config.seed,
    )


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


def build_method(config: TrainConfig, model: nn.Module, optimizer: optim.Optimizer) -> Method:
    if config.method == "dense":
        return Dense(model, optimizer)
    if config.method == "fixed":
        return Fixed(model, optimizer)
    temperature = config.temperature
    return DeepR(
        model,
        optimizer,
        l1=config.l1,
        temperature=schedule.noise_amplitude(config.noise) if temperature is None else temperature,
        rewire_every=config.rewire_every,
        newborns=config.newborns,
    )
