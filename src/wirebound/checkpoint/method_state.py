"""The method of a checkpoint: counters and arrays that its next step computes and indexes with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from wirebound.checkpoint.container import CheckpointError
from wirebound.checkpoint.tree import difference, leaves, number_fault
from wirebound.methods.method import Method

MOST_STEPS = 1 << 62
_MOST_STEPS_WITH_AGES = (1 << 31) - 1  # steps of birth are kept as int32

# What each value must be, by the name under which methods keep it.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "updates": (
        lambda n: type(n) is int and 0 <= n < _MOST_STEPS_WITH_AGES, f"a number >= 0 and < {_MOST_STEPS_WITH_AGES}"
    ),
    "signs": (lambda signs: bool((signs.abs() == 1).all()), "1 or -1"),
    "theta": (lambda theta: bool(torch.isfinite(theta).all()), "finite"),
    "theta_min": (lambda floor: math.isfinite(floor) and floor < 0, "finite and < 0"),
    "seed": (lambda seed: type(seed) is int and 0 <= seed < 1 << 63, "in [0, 2^63)"),
}


def check_method_state(state: Any, method: Method) -> None:
    """Raise unless ``state`` is a state dict that this method may be given."""
    mine = method.state_dict()
    if isinstance(state, dict) and "updates" not in state:
        mine.pop("updates", None)  # a file from before counts were kept
    fault = difference(mine, state, "method") or number_fault(state, "method")
    fault = fault or steps_fault(state.get("steps"), ages=bool(state.get("born")))
    for name, (holds, rule) in _RULES.items():
        for place, value in leaves(state[name], f"method/{name}") if not fault and name in state else ():
            if not holds(value):
                fault = f"{place}{'' if isinstance(value, torch.Tensor) else f' (={str(value)[:30]})'} must be {rule}"
    fault = fault or _born_fault(state) or _highest_fault(state, method)
    if fault:
        raise CheckpointError(fault)


def steps_fault(steps: Any, *, ages: bool = False) -> str | None:
    """Why this cannot be a number of steps taken, or None."""
    most = _MOST_STEPS_WITH_AGES if ages else MOST_STEPS
    if type(steps) is int and 0 <= steps < most:
        return None
    return f"the method's steps (={str(steps)[:30]}) must be a number >= 0 and < {most}"


def _born_fault(state: Mapping[str, Any]) -> str | None:
    # Births are dated by the updates of the optimiser, which may have begun before the method's steps.
    most = max([state["steps"], *state.get("updates", [])])
    for name, born in leaves(state.get("born", []), "method/born"):
        if born.numel() and not 0 <= int(born.min()) <= int(born.max()) <= most:
            return f"{name} must be steps in [0, {most}]"
    return None


def _highest_fault(state: Mapping[str, Any], method: Method) -> str | None:
    """The most connections of each layer were there at some time, and those of all at one time."""
    if "highest" not in state:
        return None
    layers, active = state["highest"]["layers"], state["highest"]["active"]
    for shape, count in zip(method.shapes, layers, strict=True):
        if type(count) is not int or not 0 <= count <= shape.possible:
            return f"method/highest of layer {shape.name!r} (={count}) must be in [0, {shape.possible}]"
    if type(active) is not int or not max(layers, default=0) <= active <= sum(layers):
        return f"method/highest/active (={active}) must be in [{max(layers, default=0)}, {sum(layers)}]"
    return None
