"""With what an optimiser starts its state for a connection: what a newborn has to have.

Most of it is 0, but not all: a product that starts at 1, an accumulator that starts at a small number so that nothing
is divided by 0. So the optimiser is asked: a copy of it steps a parameter of zeros with a gradient of zeros, as the
step of its birth is for a newborn, and the state that it then has is noted.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim

_PROBE = 2  # numbers of the parameter that is stepped


def first_values(optimizer: optim.Optimizer, group: Mapping[str, Any], theta: nn.Parameter) -> dict[str, float]:
    """What the optimiser starts each piece of state with, by name; empty where it cannot be asked.

    Nothing of the optimiser changes: the copy has a state, groups, hooks and containers of its own.
    """
    probe = nn.Parameter(torch.zeros(_PROBE, dtype=theta.dtype, device=theta.device))
    probe.grad = torch.zeros_like(probe)
    state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
    twin = object.__new__(type(optimizer))
    # An optimiser of which nobody knows anything may do anything here; then newborns start at 0.
    with contextlib.suppress(Exception), torch.random.fork_rng(devices=[]):
        for name, value in vars(optimizer).items():
            if name not in ("state", "param_groups") and not callable(value):
                twin.__dict__[name] = OrderedDict() if "hooks" in name else copy.deepcopy(value)
        settings = {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
        twin.__dict__.update(state=state, param_groups=[{**settings, "params": [probe]}])
        type(optimizer).step(twin)
    numbers = {name: _number(value) for name, value in state[probe].items()}
    return {name: number for name, number in numbers.items() if number is not None and math.isfinite(number)}


def _number(value: Any) -> float | None:
    """The first number of a tensor by element, in containers too; None where there is none."""
    if isinstance(value, Tensor):
        return float(value.flatten()[0]) if value.numel() == _PROBE else None
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return next((number for number in map(_number, parts) if number is not None), None)
