"""Freezing layers of a shared budget, and rates of their own for them.

All layers of a wiring share one parameter θ, so neither ``requires_grad`` nor parameter groups can tell its layers
apart. What they are used for is said about modules here, and every method keeps to it.
"""

from __future__ import annotations

import math

from torch import nn

from wirebound.nn.sparse_layer import set_frozen, sparse_layers


def freeze(module: nn.Module) -> None:
    """Stop training of a module: no connection of its sparse layers moves, dies or is born until ``unfreeze``.

    Its other parameters (biases, norms, dense layers) get ``requires_grad=False``. The budget stays exactly K: other
    layers of a shared wiring still rewire among themselves. Like ``requires_grad``, this is not part of a state
    dict or checkpoint; copies of a model have it.

    Args:
        module: a sparse layer, or any module.
    """
    set_frozen(_module("freeze", module), True)
    for parameter in module.parameters():
        if not parameter.requires_grad:
            parameter.grad = None  # or the next step would still take it


def unfreeze(module: nn.Module) -> None:
    """Train a module again, sparse layers and all other parameters.

    Args:
        module: a sparse layer, or any module.
    """
    set_frozen(_module("unfreeze", module), False)


def set_rates(module: nn.Module, *, lr: float | None = None, weight_decay: float | None = None) -> None:
    """Give the connections of a module's sparse layers a learning rate and weight decay of their own.

    Both are factors on what the optimiser's group of θ says, so lr schedulers carry them along; ℓ1 and noise follow
    the layer's own learning rate. Biases and other dense parameters belong to parameter groups, as ever.

    Args:
        module: a sparse layer, or any module that holds some.
        lr: factor on the learning rate, >= 0; 1 is as the optimiser says, None leaves it as it is.
        weight_decay: factor on the weight decay, likewise.
    """
    for name, factor in (("lr", lr), ("weight_decay", weight_decay)):
        if factor is not None and not (math.isfinite(factor) and factor >= 0):
            raise ValueError(f"{name} (={factor}) must be a finite factor >= 0")
    layers = [layer for _, layer in sparse_layers(_module("set_rates", module))]
    if not layers:
        raise ValueError(f"module (={type(module).__name__}) has no sparse layer: use parameter groups of the optimiser")
    factors = {name: float(factor) for name, factor in (("lr", lr), ("weight_decay", weight_decay)) if factor is not None}
    for layer in layers:
        layer.wiring.set_layer_rates(layer.wiring.layer_rates.changed(layer.layer_id, **factors))


def _module(name: str, module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise TypeError(f"{name} takes a module, not {type(module).__name__}")
    return module
