"""Optimisers and schedules of the learning rate by name, for settings files, the command line and estimators."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, optim

# Which settings each optimiser takes beside the learning rate and the weight decay.
OPTIMIZERS: dict[str, tuple[Callable[..., optim.Optimizer], tuple[str, ...]]] = {
    "sgd": (optim.SGD, ()),
    "momentum": (optim.SGD, ("momentum",)),
    "nesterov": (optim.SGD, ("momentum", "nesterov")),
    "adam": (optim.Adam, ("eps",)),
    "adamw": (optim.AdamW, ("eps",)),
    "rmsprop": (optim.RMSprop, ("momentum", "eps")),
}

# η at ``progress`` (0 at the first step, 1 at the last) as a share of the first η; ``final`` is the share at the end.
SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda progress, final: 1.0,
    "exponential": lambda progress, final: final**progress,
    "cosine": lambda progress, final: final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2,
    "linear": lambda progress, final: 1 + (final - 1) * progress,
}


def make_optimizer(
    name: str, parameters: Iterable[Tensor], lr: float, momentum: float = 0.9, weight_decay: float = 0.0, eps: float = 1e-8
) -> optim.Optimizer:
    """The optimiser ``name`` with these settings; those that it does not know are ignored."""
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer (={name!r}) must be one of {', '.join(OPTIMIZERS)}")
    make, known = OPTIMIZERS[name]
    given = {"momentum": momentum, "eps": eps, "nesterov": True}
    own: dict[str, Any] = {key: given[key] for key in known}
    return make(list(parameters), lr=lr, weight_decay=weight_decay, **own)
