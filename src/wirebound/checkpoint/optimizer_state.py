"""The optimiser of a checkpoint: it must look like what this very optimiser would keep for these parameters.

Kernels write to its tensors and move them with their connections, so shape, type and values are checked for every
optimiser: those of torch against what they make themselves (``optimizer_template.py``), others against the state that
they have here, if they have any, and against what can be state at all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound.checkpoint.errors import CheckpointError
from wirebound.checkpoint.optimizer_template import Groups, Kept, Template, template_of
from wirebound.checkpoint.tree import described, difference, leaves, number_fault
from wirebound.methods.average import AVERAGE, UPDATES

# What an optimiser's state dict may hold beside ``state`` and ``param_groups``: the state of a method that it carries.
BESIDE = frozenset({"wirebound"})
# Keys that schedulers add to a group; the rest must be there on both sides.
_ADDED = {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}
_COUNTS = (torch.float32, torch.float64)  # the types of a scalar, by torch's default type when it was made


def check_optimizer_state(state: Any, optimizer: optim.Optimizer, thetas: Collection[nn.Parameter] = ()) -> None:
    """Raise unless ``state`` is a state dict that this optimiser may be given; ``thetas`` move with connections."""
    if not isinstance(state, dict) or set(state) - BESIDE != {"state", "param_groups"}:
        held = ", ".join(map(str, state))[:80] if isinstance(state, dict) else described(state)
        raise CheckpointError(f"the optimiser must have state and param_groups and nothing else, has {held}")
    if not isinstance(state["state"], dict):
        raise CheckpointError("the optimiser's state must be by parameter")
    mine, theirs = optimizer.state_dict()["param_groups"], state["param_groups"]
    if not isinstance(theirs, list) or len(theirs) != len(mine):
        raise CheckpointError(f"the optimiser must have {len(mine)} parameter groups")
    for number, (here, there) in enumerate(zip(mine, theirs, strict=True)):
        _check_group(f"parameter group {number}", here, there)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for key, kept in state["state"].items():
        if type(key) is not int or not 0 <= key < len(parameters) or not isinstance(kept, dict):
            raise CheckpointError(f"optimiser state {str(key)[:40]!r} must belong to one of {len(parameters)} parameters")
        _check_average(f"optimiser state {key}", kept, parameters[key])
    template = _template(optimizer, mine, theirs)
    if template is None:
        moving = set() if isinstance(optimizer, optim.LBFGS) else {id(theta) for theta in thetas}
        total = sum(p.numel() for p in parameters)
        for key, kept in state["state"].items():
            _check_foreign(key, kept, parameters[key], optimizer, id(parameters[key]) in moving, total)
        return
    for key, kept in state["state"].items():
        wanted = _wanted(key, kept, parameters[key], template, optimizer, theirs)
        for name, value in kept.items():
            _check_kept(f"optimiser state {key}/{name}", name, value, wanted[name])
    if template.from_the_start and len(state["state"]) < len(parameters):
        raise CheckpointError(f"{type(optimizer).__name__} must have state of each of {len(parameters)} parameters")


def _check_group(name: str, mine: Mapping[str, Any], theirs: Any) -> None:
    if not isinstance(theirs, Mapping):
        raise CheckpointError(f"{name} must be settings by name")
    both = {key for key in {*mine, *theirs} if key not in _ADDED or (key in mine and key in theirs)}
    here = {key: mine[key] for key in both if key in mine}
    there = {key: theirs[key] for key in both if key in theirs}
    wrong = difference(here, there, name) or number_fault(theirs, name)
    if wrong:
        raise CheckpointError(wrong)
    if there["params"] != here["params"]:
        raise CheckpointError(f"{name} must hold the same parameters as here")
    for key, value in theirs.items():
        if mine.get(key) is None and not isinstance(value, bool | int | float | None):
            raise CheckpointError(f"{name}/{key} must be a number or nothing, is {described(value)}")
    lr = theirs.get("lr")
    if isinstance(lr, int | float | Tensor) and not (math.isfinite(lr) and lr >= 0):
        raise CheckpointError(f"{name}/lr (={float(lr)}) must be a finite number >= 0")


def _check_average(name: str, kept: Mapping[str, Any], parameter: nn.Parameter) -> None:
    """``wb.WeightAverage`` keeps two pieces in whatever optimiser it is."""
    if not {AVERAGE, UPDATES} & kept.keys():
        return
    average, updates = kept.get(AVERAGE), kept.get(UPDATES)
    if not isinstance(average, Tensor) or average.shape != parameter.shape or not average.is_floating_point():
        raise CheckpointError(f"{name}/{AVERAGE} must be {described(parameter)}, is {described(average)}")
    if type(updates) is not int or not 1 <= updates < 1 << 62:
        raise CheckpointError(f"{name}/{UPDATES} (={str(updates)[:30]}) must be a count >= 1")


def _template(optimizer: optim.Optimizer, mine: Groups, theirs: Groups) -> Template | None:
    """What the optimiser keeps with the settings of the file, which win as they do in torch."""
    try:
        return template_of(optimizer, theirs)
    except Exception as error:
        try:
            template_of(optimizer, mine)
        except Exception:  # it cannot be asked here with any settings
            return None
        wrong = f"{type(error).__name__}: {str(error)[:80]}"
        raise CheckpointError(f"{type(optimizer).__name__} cannot make a step with its settings ({wrong})") from None


def _wanted(
    key: int,
    kept: Mapping[str, Any],
    parameter: nn.Parameter,
    template: Template,
    optimizer: optim.Optimizer,
    groups: Groups,
) -> dict[str, Kept]:
    """How each piece of state of a parameter must be; raises if one lacks, or is there that cannot be."""
    needed = template.needed[key]
    if not kept and not template.from_the_start:  # no step with a gradient so far
        return {}
    if kept.keys() == needed.keys():
        return needed
    most = template_of(optimizer, groups, most=True)
    assert most is not None
    # An average of the weights is kept there too, so that it moves with connections.
    riding = {AVERAGE: Kept(tuple(parameter.shape), parameter.dtype), UPDATES: Kept(None, None)}
    known = {**riding, **most.needed[key], **needed}
    optional = {"momentum_buffer"} if type(optimizer) is optim.SGD else set()  # made when it is first needed
    if needed.keys() - optional <= kept.keys() <= known.keys():
        return known
    held = ", ".join(sorted(map(str, kept))[:8])[:200] or "nothing"
    raise CheckpointError(f"optimiser state {key} must hold {', '.join(sorted(needed)) or 'nothing'}, holds {held}")


def _check_kept(name: str, key: str, value: Any, wanted: Kept) -> None:
    """One piece of state of torch's own optimisers."""
    if value is None and key == "momentum_buffer":
        return
    if wanted.shape is None:
        if not isinstance(value, bool | int | float | None):
            raise CheckpointError(f"{name} must be a number, is {described(value)}")
        return
    types = _COUNTS if wanted.shape == () and wanted.dtype in _COUNTS else (wanted.dtype,)
    if not isinstance(value, Tensor) or value.shape != wanted.shape or value.dtype not in types:
        rule = "a count" if key == "step" else f"{str(wanted.dtype).removeprefix('torch.')} of shape {wanted.shape}"
        raise CheckpointError(f"{name} must be {rule}, is {described(value)}")
    if not bool(torch.isfinite(value).all()):
        raise CheckpointError(f"{name} must be finite")
    if key == "step" and float(value) < 0:
        raise CheckpointError(f"{name} (={float(value)}) must be a count")


def _check_foreign(
    key: int, kept: Mapping[str, Any], parameter: nn.Parameter, optimizer: optim.Optimizer, moving: bool, total: int
) -> None:
    """The state of an optimiser that is not torch's: nested as it likes, of numbers that can belong to its parameter.

    Types may differ from those here: torch gives state the type of its parameter when it is loaded.
    """
    here = dict(leaves(optimizer.state.get(parameter, {}), f"optimiser state {key}"))
    most = total if isinstance(optimizer, optim.LBFGS) else max(1, parameter.numel())
    for name, value in leaves(kept, f"optimiser state {key}"):
        if not isinstance(value, Tensor):
            fault = number_fault(value, name)
            if fault:
                raise CheckpointError(fault)
            continue
        mine = here.get(name)
        if isinstance(mine, Tensor) and mine.shape != value.shape:
            raise CheckpointError(f"{name} must be {described(mine)}, is {described(value)}")
        of_element = value.numel() == 1 or value.shape == parameter.shape
        if value.numel() > most or (moving and not of_element) or (name.endswith("/step") and value.numel() != 1):
            raise CheckpointError(f"{name} must fit its parameter ({described(parameter)}), is {described(value)}")
        if value.is_floating_point() and bool(torch.isnan(value).any()):
            raise CheckpointError(f"{name} must be numbers, has NaN")
