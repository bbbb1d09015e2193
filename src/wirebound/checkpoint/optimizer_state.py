"""The optimiser of a checkpoint. Kernels write to its tensors, so each must fit its parameter exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound.checkpoint.errors import CheckpointError
from wirebound.checkpoint.tree import described, difference

_AVERAGE = "average"  # a moving average of the weights that rides along (experiments/weight_average.py)
_SGD, _ADAM = {"momentum_buffer", _AVERAGE}, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", _AVERAGE}
# Keys that schedulers add to a group; the rest must be there on both sides.
_ADDED = {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}


def check_optimizer_state(state: Any, optimizer: optim.Optimizer) -> None:
    """Raise unless ``state`` is a state dict that this optimiser may be given."""
    if not isinstance(state, dict) or set(state) != {"state", "param_groups"} or not isinstance(state["state"], dict):
        raise CheckpointError("the optimiser must have state and param_groups")
    mine = optimizer.state_dict()["param_groups"]
    theirs = state["param_groups"]
    if not isinstance(theirs, list) or len(theirs) != len(mine):
        raise CheckpointError(f"the optimiser must have {len(mine)} parameter groups")
    for number, (here, there) in enumerate(zip(mine, theirs, strict=True)):
        _check_group(f"parameter group {number}", here, there)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for key, kept in state["state"].items():
        if type(key) is not int or not 0 <= key < len(parameters) or not isinstance(kept, dict):
            raise CheckpointError(f"optimiser state {key!r} must belong to one of {len(parameters)} parameters")
        for name, value in kept.items():
            _check_value(f"optimiser state {key}/{name}", value, parameters[key])
        if type(optimizer) is optim.SGD:
            _check_names(key, kept, parameters[key], _SGD, set())
        elif type(optimizer) in (optim.Adam, optim.AdamW):
            group = next(g for g in theirs if key in g["params"])
            needed = _ADAM - {_AVERAGE, *(() if group["amsgrad"] else ("max_exp_avg_sq",))}
            _check_names(key, kept, parameters[key], _ADAM, needed if kept else set())


def _check_group(name: str, mine: Mapping[str, Any], theirs: Any) -> None:
    if not isinstance(theirs, Mapping):
        raise CheckpointError(f"{name} must be settings by name")
    both = {key for key in {*mine, *theirs} if key not in _ADDED or (key in mine and key in theirs)}
    here = {key: mine[key] for key in both if key in mine}
    there = {key: theirs[key] for key in both if key in theirs}
    wrong = difference(here, there, name)
    if wrong:
        raise CheckpointError(wrong)
    if there["params"] != here["params"]:
        raise CheckpointError(f"{name} must hold the same parameters as here")
    for key, value in theirs.items():
        if mine.get(key) is None and not isinstance(value, bool | int | float | None):
            raise CheckpointError(f"{name}/{key} must be a number or nothing, is {described(value)}")
        numbers = value if isinstance(value, tuple | list) else [value]
        if any(isinstance(number, float) and math.isnan(number) for number in numbers):
            raise CheckpointError(f"{name}/{key} must be a number")


def _check_value(name: str, value: Any, parameter: nn.Parameter) -> None:
    if value is None or isinstance(value, bool | int | float):
        return
    if not isinstance(value, Tensor):
        raise CheckpointError(f"{name} must be a tensor or a number, is {described(value)}")
    if value.numel() > max(1, parameter.numel()):
        raise CheckpointError(f"{name} must fit its parameter ({described(parameter)}), is {described(value)}")
    if value.is_floating_point() and bool(torch.isnan(value).any()):
        raise CheckpointError(f"{name} must be numbers, has NaN")


def _check_names(key: int, kept: Mapping[str, Any], parameter: nn.Parameter, known: set[str], needed: set[str]) -> None:
    """What our kernels read and write: known names, whole tensors of the parameter's own shape and type."""
    if not needed <= set(kept) <= known:
        held = sorted(map(str, kept))[:8]
        raise CheckpointError(f"optimiser state {key} must hold {sorted(needed or known)}, holds {held}")
    for name, value in kept.items():
        if name == "step":
            fits = isinstance(value, Tensor) and value.shape == () and bool(value >= 0)
        elif value is None:
            fits = name == "momentum_buffer"
        else:
            fits = isinstance(value, Tensor) and value.shape == parameter.shape and value.dtype == parameter.dtype
        if not fits:
            wanted = "a count" if name == "step" else described(parameter)
            raise CheckpointError(f"optimiser state {key}/{name} must be {wanted}, is {described(value)}")
