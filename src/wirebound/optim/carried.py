"""Which of an optimiser's tensors move with their connections, and with what a newborn starts there.

They may be in ``state[θ]``, in containers in there, in an optimiser that it wraps, or in attributes of its own.
"""

import contextlib
import copy
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim

_MOST_ROWS = 64  # of a table with a row of K for each of some buffers
_DEPTH = 6  # of containers in containers
_PROBE = 2  # numbers of the parameter that a copy of the optimiser is asked with
_Path = tuple[str, ...]


def inner_optimizers(optimizer: optim.Optimizer) -> list[optim.Optimizer]:
    """The optimisers that this one wraps, and those in them."""
    found: list[Any] = []
    queue = deque([optimizer])
    while queue:
        for value in vars(queue.popleft()).values():
            for one in value if isinstance(value, list | tuple) else (value,):
                known = one is optimizer or any(one is other for other in found)
                if not known and hasattr(one, "param_groups") and isinstance(getattr(one, "state", None), Mapping):
                    found.append(one)
                    queue.append(one)
    return found


def carried_tensors(optimizer: optim.Optimizer, theta: nn.Parameter) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of everything with one number for each connection, each once; an error where a shape is another."""
    seen = {theta.data_ptr()}
    same = [p for group in optimizer.param_groups for p in group["params"] if p.shape == theta.shape]
    for one in (optimizer, *inner_optimizers(optimizer)):
        for path, value in _leaves(one.state.get(theta, {})):
            for row in _rows(one, path, value, theta):
                if row.data_ptr() not in seen:
                    seen.add(row.data_ptr())
                    yield path[0], row
        for path, value in _outside(one, theta):
            if value.data_ptr() not in seen and value.shape == theta.shape and value is not theta.grad:
                if len(same) > 1:
                    alike = f"where {len(same)} parameters of the same shape cannot be told apart"
                    raise _refused(one, path, f"outside of its state, {alike}: use an optimiser that keeps it by parameter")
                seen.add(value.data_ptr())
                yield path[0], _contiguous(one, path, value)


def _leaves(value: Any, path: _Path = (), depth: int = _DEPTH) -> Iterator[tuple[_Path, Tensor]]:
    """The tensors in nested containers, with the names that lead to them."""
    if isinstance(value, Tensor):
        yield path or ("",), value
    elif depth and isinstance(value, Mapping | list | tuple | deque):
        for name, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(part, (*path, str(name)), depth - 1)


def _rows(optimizer: optim.Optimizer, path: _Path, value: Tensor, theta: nn.Parameter) -> list[Tensor]:
    """The rows of a piece of state that have one number for each connection; a single number belongs to none."""
    if value.shape == theta.shape:
        return [_contiguous(optimizer, path, value)]
    if value.numel() <= 1:
        return []
    if theta.dim() == 1 and value.dim() == 2 and value.shape[1] == theta.numel() and len(value) <= _MOST_ROWS:
        return list(_contiguous(optimizer, path, value))
    needed = f"of shape {tuple(value.shape)}, which must be {tuple(theta.shape)} to move with connections"
    raise _refused(optimizer, path, f"{needed}: use an optimiser that keeps its state by element")


def _contiguous(optimizer: optim.Optimizer, path: _Path, value: Tensor) -> Tensor:
    if not value.is_contiguous():
        why = f"scattered in memory (strides {value.stride()}): it must be contiguous to move with connections"
        raise _refused(optimizer, path, why)
    return value


def _refused(optimizer: optim.Optimizer, path: _Path, why: str) -> ValueError:
    return ValueError(f"optimizer (={type(optimizer).__name__}) keeps {'/'.join(path)!r} {why}")


def _outside(optimizer: optim.Optimizer, theta: nn.Parameter) -> Iterator[tuple[_Path, Tensor]]:
    """The tensors in an optimiser's attributes or under other keys of its state; in tables by parameter only θ's."""
    shared = [(str(key), value) for key, value in optimizer.state.items() if not isinstance(key, Tensor)]
    for name, value in (*vars(optimizer).items(), *shared):
        if name in ("state", "param_groups", "defaults"):
            continue
        if isinstance(value, Mapping) and any(isinstance(key, Tensor) for key in value):
            value = [part for key, part in value.items() if key is theta]
        elif isinstance(value, Mapping) and id(theta) in value:
            value = value[id(theta)]
        yield from _leaves(value, (name,))


def starts(optimizer: optim.Optimizer, group: Mapping[str, Any], theta: nn.Parameter) -> dict[str, float]:
    """With what pieces of state start for a newborn, by name; what is not here, as moments or averages of θ, starts at 0."""
    found: dict[str, float] = {}
    for one in (optimizer, *inner_optimizers(optimizer)):
        if isinstance(one, optim.Adagrad):  # makes its state before the first step
            found["sum"] = float(group["initial_accumulator_value"])
        elif not inner_optimizers(one):  # a wrapper's own are slow weights and the like
            found |= _asked(one, group, theta)
    return found


def _asked(optimizer: optim.Optimizer, group: Mapping[str, Any], theta: nn.Parameter) -> dict[str, float]:
    """What a copy of the optimiser, with containers of its own, has after a step of zeros with a gradient of zeros."""
    probe = nn.Parameter(torch.zeros(_PROBE, dtype=theta.dtype, device=theta.device))
    probe.grad = torch.zeros_like(probe)
    state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
    twin = object.__new__(type(optimizer))
    # An optimiser of which nobody knows anything may do anything here; then newborns start at 0.
    with contextlib.suppress(Exception), torch.random.fork_rng(devices=[]):
        for name, value in vars(optimizer).items():
            if name not in ("state", "param_groups") and not callable(value) and not name.startswith("_wirebound"):
                twin.__dict__[name] = OrderedDict() if "hooks" in name else copy.deepcopy(value)
        settings = {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
        twin.__dict__.update(state=state, param_groups=[{**settings, "params": [probe]}])
        type(optimizer).step(twin)
    leaves = [(path[0], tensor) for path, tensor in _leaves(state[probe]) if tensor.numel() == _PROBE]
    numbers = {name: float(tensor.flatten()[0]) for name, tensor in reversed(leaves)}  # the first of each name stays
    return {name: number for name, number in numbers.items() if math.isfinite(number)}
