"""The optimiser of a checkpoint: it must look like what this very optimiser would keep for these parameters.

Kernels write to its tensors and move them with their connections, so shape, type and values are checked for every
optimiser: torch's own against what they make themselves, in one step on parameters of a few numbers (a table of names
would be right for one version of torch); others against the state that they have here, if they have any, and against
what can be state at all.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound.checkpoint.container import CheckpointError
from wirebound.checkpoint.tree import described, difference, leaves, listed, number_fault
from wirebound.methods.attach import KEY
from wirebound.methods.average import AVERAGE, UPDATES

Groups = Sequence[Mapping[str, Any]]
# Keys that schedulers add to a group; the rest must be there on both sides.
_ADDED = {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}
_COUNTS = (torch.float32, torch.float64)  # the types of a scalar, by torch's default type when it was made
# How a step is computed, not what it is: the plainest way does for small parameters.
_PLAINEST: dict[str, Any] = {"foreach": False, "fused": None, "capturable": False, "differentiable": False}
# Settings that make an optimiser keep more. They may have been on earlier in a training in which they are off now.
_SWITCHES: dict[str, Any] = {"momentum": 0.5, "amsgrad": True, "centered": True}


def check_optimizer_state(state: Any, optimizer: optim.Optimizer, thetas: Collection[nn.Parameter] = ()) -> None:
    """Raise unless ``state`` is a state dict that this optimiser may be given; ``thetas`` move with connections."""
    if not isinstance(state, dict) or set(state) - {KEY} != {"state", "param_groups"}:
        raise CheckpointError(f"the optimiser must have state and param_groups and nothing else, has {listed(state)}")
    if not isinstance(state["state"], dict):
        raise CheckpointError("the optimiser's state must be by parameter")
    mine, theirs = optimizer.state_dict()["param_groups"], state["param_groups"]
    if not isinstance(theirs, list) or len(theirs) != len(mine):
        raise CheckpointError(f"the optimiser must have {len(mine)} parameter groups")
    for number, (here, there) in enumerate(zip(mine, theirs, strict=True)):
        _check_group(f"parameter group {number}", here, there)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    needed, from_the_start = _asked(optimizer, mine, theirs)
    moving = set() if isinstance(optimizer, optim.LBFGS) else {id(theta) for theta in thetas}
    for key, kept in state["state"].items():
        if type(key) is not int or not 0 <= key < len(parameters) or not isinstance(kept, dict):
            raise CheckpointError(f"optimiser state {str(key)[:40]!r} must belong to one of {len(parameters)} parameters")
        name, parameter = f"optimiser state {key}", parameters[key]
        _check_average(name, kept, parameter)
        kept = {part: value for part, value in kept.items() if part not in (AVERAGE, UPDATES)}
        if needed is None:
            _check_foreign(name, kept, parameter, optimizer, moving=id(parameter) in moving)
        elif kept or from_the_start:  # nothing: no step with a gradient so far
            wanted = needed[key]
            if kept.keys() != wanted.keys():
                most = _made_by(optimizer, theirs, most=True)[0][key]
                optional = {"momentum_buffer"} if type(optimizer) is optim.SGD else set()  # made when it is first needed
                if not wanted.keys() - optional <= kept.keys() <= most.keys() | wanted.keys():
                    raise CheckpointError(f"{name} must hold {listed(wanted)}, holds {listed(kept)}")
                wanted = {**most, **wanted}
            for part, value in kept.items():
                _check_kept(f"{name}/{part}", part, value, wanted[part])
    if from_the_start and len(state["state"]) < len(parameters):
        raise CheckpointError(f"{type(optimizer).__name__} must have state of each of {len(parameters)} parameters")


def _check_group(name: str, mine: Mapping[str, Any], theirs: Any) -> None:
    if not isinstance(theirs, Mapping):
        raise CheckpointError(f"{name} must be settings by name")
    both = {key for key in {*mine, *theirs} if key not in _ADDED or (key in mine and key in theirs)}
    here, there = ({key: group[key] for key in both if key in group} for group in (mine, theirs))
    fault = difference(here, there, name) or number_fault(theirs, name)
    if fault:
        raise CheckpointError(fault)
    if there["params"] != here["params"]:
        raise CheckpointError(f"{name} must hold the same parameters as here")
    for key, value in theirs.items():
        if mine.get(key) is None and not isinstance(value, bool | int | float | None):
            raise CheckpointError(f"{name}/{key} must be a number or nothing, is {described(value)}")
    lr = theirs.get("lr")
    if isinstance(lr, int | float | Tensor) and not (math.isfinite(lr) and lr >= 0):
        raise CheckpointError(f"{name}/lr (={float(lr)}) must be a finite number >= 0")


def _check_average(name: str, kept: Mapping[str, Any], parameter: nn.Parameter) -> None:
    """``wb.WeightAverage`` keeps two pieces in whatever optimiser it is, so that they move with connections."""
    if not {AVERAGE, UPDATES} & kept.keys():
        return
    average, updates = kept.get(AVERAGE), kept.get(UPDATES)
    if not isinstance(average, Tensor) or average.shape != parameter.shape or not average.is_floating_point():
        raise CheckpointError(f"{name}/{AVERAGE} must be {described(parameter)}, is {described(average)}")
    if not bool(torch.isfinite(average).all()):
        raise CheckpointError(f"{name}/{AVERAGE} must be finite")
    if type(updates) is not int or not 1 <= updates < 1 << 62:
        raise CheckpointError(f"{name}/{UPDATES} (={str(updates)[:30]}) must be a count >= 1")


def _asked(optimizer: optim.Optimizer, mine: Groups, theirs: Groups) -> tuple[list[dict[str, Any]] | None, bool]:
    """What the optimiser keeps with the settings of the file, which win as they do in torch; None if it cannot be asked.

    Only torch's own are asked: a step of anyone else's may do anything, such as wait for other processes.
    """
    kind = type(optimizer)
    if not kind.__module__.startswith("torch.optim.") or kind in (optim.LBFGS, optim.SparseAdam):
        return None, False
    try:
        return _made_by(optimizer, theirs)
    except Exception as error:
        try:
            _made_by(optimizer, mine)
        except Exception:  # it cannot be asked here with any settings
            return None, False
        wrong = f"{type(error).__name__}: {str(error)[:80]}"
        raise CheckpointError(f"{kind.__name__} cannot make a step with its settings ({wrong})") from None


def _made_by(optimizer: optim.Optimizer, groups: Groups, *, most: bool = False) -> tuple[list[dict[str, Any]], bool]:
    """(the state of each parameter after a step with the settings of ``groups``, whether it is there before it too).

    Tensors are on the meta device. With ``most``, everything that could have been kept under some of its settings.
    """
    kind = type(optimizer)
    small, settings = [], []
    for mine, theirs in zip(optimizer.param_groups, groups, strict=True):
        params = [nn.Parameter(torch.full([2] * p.dim(), 0.5, dtype=p.dtype)) for p in mine["params"]]
        own = {key: value for key, value in theirs.items() if key not in ("params", "param_names")}
        own |= {key: value for key, value in (_PLAINEST | (_SWITCHES if most else {})).items() if key in own}
        settings.append({**own, "params": params})
        small += params
    for parameter in small:
        parameter.grad = torch.full_like(parameter, 0.25)
    arguments = inspect.signature(kind).parameters
    defaults = {key: _PLAINEST.get(key, value) for key, value in optimizer.defaults.items() if key in arguments}
    twin = kind(settings, **defaults)
    from_the_start = all(twin.state.get(parameter) for parameter in small)
    # Past the wrapper of torch that calls the hooks which users have set for all optimisers: this is no step of theirs.
    step: Any = getattr(kind.step, "__wrapped__", kind.step)
    step(twin)
    real = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    pairs = [(twin.state.get(a, {}), a, b) for a, b in zip(small, real, strict=True)]
    return [{name: _sized(value, a, b) for name, value in kept.items()} for kept, a, b in pairs], from_the_start


def _sized(value: Any, small: nn.Parameter, real: nn.Parameter) -> Any:
    """How a piece of state would be for the real parameter, from how it is for the small one."""
    if not isinstance(value, Tensor):
        return value
    shape = list(value.shape)
    if value.dim() == small.dim():  # else a scalar beside a parameter with dimensions
        shape = [1 if here == 1 else there for here, there in zip(value.shape, real.shape, strict=True)]
    return torch.empty(shape, dtype=value.dtype, device="meta")


def _check_kept(name: str, key: str, value: Any, wanted: Any) -> None:
    """One piece of state of torch's own optimisers."""
    if value is None and key == "momentum_buffer":
        return
    if not isinstance(wanted, Tensor):
        if not isinstance(value, bool | int | float | None):
            raise CheckpointError(f"{name} must be a number, is {described(value)}")
        return
    types = _COUNTS if wanted.shape == () and wanted.dtype in _COUNTS else (wanted.dtype,)
    if not isinstance(value, Tensor) or value.shape != wanted.shape or value.dtype not in types:
        rule = "a count" if key == "step" else described(wanted)
        raise CheckpointError(f"{name} must be {rule}, is {described(value)}")
    if not bool(torch.isfinite(value).all()):
        raise CheckpointError(f"{name} must be finite")
    if key == "step" and float(value) < 0:
        raise CheckpointError(f"{name} (={float(value)}) must be a count")


def _check_foreign(
    key: str, kept: Mapping[str, Any], parameter: nn.Parameter, optimizer: optim.Optimizer, *, moving: bool
) -> None:
    """The state of an optimiser that is not torch's: nested as it likes, of numbers that can belong to its parameter.

    Types may differ from those here: torch gives state the type of its parameter when it is loaded.
    """
    here = dict(leaves(optimizer.state.get(parameter, {}), key))
    most = max(1, parameter.numel())
    if isinstance(optimizer, optim.LBFGS):
        most = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    for name, value in leaves(kept, key):
        fault = number_fault(value, name)
        if fault:
            raise CheckpointError(fault)
        if not isinstance(value, Tensor):
            continue
        mine = here.get(name)
        if isinstance(mine, Tensor) and mine.shape != value.shape:
            raise CheckpointError(f"{name} must be {described(mine)}, is {described(value)}")
        of_element = value.numel() == 1 or value.shape == parameter.shape
        if value.numel() > most or (moving and not of_element) or (name.endswith("/step") and value.numel() != 1):
            raise CheckpointError(f"{name} must fit its parameter ({described(parameter)}), is {described(value)}")
