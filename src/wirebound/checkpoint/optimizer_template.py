"""What an optimiser of torch keeps for its parameters, found by asking it: one step on parameters of a few numbers.

A table of names would be right for a few optimisers and one version of torch; the optimiser itself is right always.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, optim

_EXTENT = 2  # of every dimension of the small parameters
# How a step is computed, not what it is: the plainest way does for small parameters.
_PLAINEST: dict[str, Any] = {"foreach": False, "fused": None, "capturable": False, "differentiable": False}
# Settings that make an optimiser keep more. They may have been on earlier in a training in which they are off now.
_SWITCHES: dict[str, Any] = {"momentum": 0.5, "amsgrad": True, "centered": True}

Groups = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Kept:
    """One piece of state: a tensor of this shape and type, or (shape None) anything that is no tensor."""

    shape: tuple[int, ...] | None
    dtype: torch.dtype | None


@dataclass(frozen=True)
class Template:
    """What an optimiser keeps for each of its parameters, in their order."""

    needed: list[dict[str, Kept]]  # after a step
    from_the_start: bool  # also before the first step


def template_of(optimizer: optim.Optimizer, groups: Groups, *, most: bool = False) -> Template | None:
    """What ``optimizer`` would keep with the settings of ``groups``; None for one that cannot be asked.

    Only torch's own are asked: a step of anyone else's may do anything, such as wait for other processes.
    With ``most``, everything that it could have kept under some of its settings. Raises what the optimiser raises if
    it cannot make a step with these settings.
    """
    kind = type(optimizer)
    if not kind.__module__.startswith("torch.optim.") or kind in (optim.LBFGS, optim.SparseAdam):
        return None
    small, settings = [], []
    for mine, theirs in zip(optimizer.param_groups, groups, strict=True):
        params = [_small(parameter) for parameter in mine["params"]]
        own = {key: value for key, value in theirs.items() if key not in ("params", "param_names")}
        for given in (_PLAINEST, _SWITCHES if most else {}):
            own |= {key: value for key, value in given.items() if key in own}
        settings.append({**own, "params": params})
        small += params
    arguments = inspect.signature(kind).parameters
    defaults = {key: value for key, value in optimizer.defaults.items() if key in arguments}
    twin = kind(settings, **{**defaults, **{key: value for key, value in _PLAINEST.items() if key in defaults}})
    from_the_start = all(twin.state.get(parameter) for parameter in small)
    # Past the wrapper of torch that calls the hooks which users have set for all optimisers: this is no step of theirs.
    step: Any = getattr(kind.step, "__wrapped__", kind.step)
    step(twin)
    real = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    needed = [
        {name: _kept(value, a, b) for name, value in twin.state.get(a, {}).items()}
        for a, b in zip(small, real, strict=True)
    ]
    return Template(needed, from_the_start)


def _small(parameter: nn.Parameter) -> nn.Parameter:
    small = nn.Parameter(torch.full([_EXTENT] * parameter.dim(), 0.5, dtype=parameter.dtype))
    small.grad = torch.full_like(small, 0.25)
    return small


def _kept(value: Any, small: nn.Parameter, real: nn.Parameter) -> Kept:
    """How a piece of state would be for the real parameter, from how it is for the small one."""
    if not isinstance(value, Tensor):
        return Kept(None, None)
    if value.dim() != small.dim():  # a scalar beside a parameter with dimensions
        return Kept(tuple(value.shape), value.dtype)
    extents = [1 if here == 1 else there for here, there in zip(value.shape, real.shape, strict=True)]
    return Kept(tuple(extents), value.dtype)
