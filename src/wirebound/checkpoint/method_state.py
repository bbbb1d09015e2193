"""The method of a checkpoint: counters and arrays that its next step computes and indexes with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from wirebound.checkpoint.errors import CheckpointError
from wirebound.checkpoint.tree import difference, leaves, number_fault
from wirebound.methods.method import Method

MOST_STEPS = 1 << 62
_MOST_STEPS_WITH_AGES = (1 << 31) - 1  # steps of birth are kept as int32


def check_method_state(state: Any, method: Method) -> None:
    """Raise unless ``state`` is a state dict that this method may be given."""
    mine = method.state_dict()
    if isinstance(state, dict) and "updates" in mine and "updates" not in state:  # before counts were kept
        mine.pop("updates")
    fault = difference(mine, state, "method") or number_fault(state, "method") or _not_a_number(state)
    if not fault:
        fault = steps_fault(state.get("steps"), ages=bool(state.get("born")))
    for name, rule in _RULES.items():
        if not fault and name in state:
            fault = rule(state[name], state, method)
    if fault:
        raise CheckpointError(fault)


def steps_fault(steps: Any, *, ages: bool = False) -> str | None:
    """Why this cannot be a number of steps taken, or None."""
    most = _MOST_STEPS_WITH_AGES if ages else MOST_STEPS
    if type(steps) is int and 0 <= steps < most:
        return None
    return f"the method's steps (={str(steps)[:30]}) must be a number >= 0 and < {most}"


def _not_a_number(state: Mapping[str, Any]) -> str | None:
    for name, value in leaves(state, "method"):
        if isinstance(value, Tensor) and value.is_floating_point() and bool(torch.isnan(value).any()):
            return f"{name} must be numbers, has NaN"
    return None


def _born_fault(value: Any, state: Mapping[str, Any], method: Method) -> str | None:
    # Births are dated by the updates of the optimiser, which may have begun before the method's steps.
    most = max([state["steps"], *state.get("updates", [])])
    for name, born in leaves(value, "method/born"):
        if born.numel() and not 0 <= int(born.min()) <= int(born.max()) <= most:
            return f"{name} must be steps in [0, {most}]"
    return None


def _updates_fault(value: Any, state: Mapping[str, Any], method: Method) -> str | None:
    for name, count in leaves(value, "method/updates"):
        if type(count) is not int or not 0 <= count < _MOST_STEPS_WITH_AGES:
            return f"{name} (={str(count)[:30]}) must be a number >= 0 and < {_MOST_STEPS_WITH_AGES}"
    return None


def _signs_fault(value: Any, state: Mapping[str, Any], method: Method) -> str | None:
    for name, signs in leaves(value, "method/signs"):
        if not bool((signs.abs() == 1).all()):
            return f"{name} must be 1 or -1"
    return None


def _theta_fault(value: Any, state: Mapping[str, Any], method: Method) -> str | None:
    for name, theta in leaves(value, "method/theta"):
        if not bool(torch.isfinite(theta).all()):
            return f"{name} must be finite"
    return None


def _floor_fault(value: Any, state: Mapping[str, Any], method: Method) -> str | None:
    for name, floor in leaves(value, "method/theta_min"):
        if not (math.isfinite(floor) and floor < 0):
            return f"{name} (={floor}) must be finite and < 0"
    return None


def _seed_fault(value: Any, state: Mapping[str, Any], method: Method) -> str | None:
    return None if type(value) is int and 0 <= value < 1 << 63 else f"method/seed (={value}) must be in [0, 2^63)"


def _highest_fault(value: Any, state: Mapping[str, Any], method: Method) -> str | None:
    """The most connections of each layer were there at some time, and those of all at one time."""
    layers, active = value["layers"], value["active"]
    for shape, count in zip(method.shapes, layers, strict=True):
        if type(count) is not int or not 0 <= count <= shape.possible:
            return f"method/highest of layer {shape.name!r} (={count}) must be in [0, {shape.possible}]"
    if type(active) is not int or not max(layers, default=0) <= active <= sum(layers):
        return f"method/highest/active (={active}) must be in [{max(layers, default=0)}, {sum(layers)}]"
    return None


# By the names under which methods keep them; what else a method keeps must be of the same kind as it has now.
_RULES: dict[str, Callable[[Any, Mapping[str, Any], Method], str | None]] = {
    "updates": _updates_fault,
    "born": _born_fault,
    "signs": _signs_fault,
    "theta": _theta_fault,
    "theta_min": _floor_fault,
    "seed": _seed_fault,
    "highest": _highest_fault,
}
