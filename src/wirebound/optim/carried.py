"""Which of an optimiser's tensors move with their connections.

An optimiser may keep what it knows of θ directly in ``state[θ]``, in containers in there, in an optimiser that it
wraps, or in attributes of its own. All tensors of θ's shape are found; what has another shape cannot move with
connections, and its optimiser is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn, optim

from wirebound.optim.starts import first_values

# Optimisers that cannot be told by the shapes of their state, or only after it was made.
REFUSED = {
    "LBFGS": "keeps one history for all parameters together",
    "SparseAdam": "takes sparse gradients, and those of θ are dense",
    "ZeroRedundancyOptimizer": "keeps the state of θ on one of the processes",
    "Shampoo": "keeps matrices with a row for each of the K connections",
    "ScalableShampoo": "keeps matrices with a row for each of the K connections",
    "DistributedShampoo": "keeps matrices with a row for each of the K connections",
    "SOAP": "keeps matrices with a row for each of the K connections",
    "Kron": "keeps a preconditioner of all connections together",
    "DeMo": "sends a transform of all connections together",
}
_MOST_ROWS = 64  # of a table with a row of K for each of some buffers
_DEPTH = 6  # of containers in containers
_NOT_STATE = ("state", "param_groups", "defaults")


def refusal(optimizer: optim.Optimizer) -> str | None:
    """Why this optimiser cannot train connections that move, or None as far as its class tells."""
    for one in (optimizer, *_inner(optimizer)):
        for kind in type(one).__mro__:
            if kind.__name__ in REFUSED:
                return REFUSED[kind.__name__]
        for group in one.param_groups:
            for option, reason in (
                ("differentiable", "a step that replaces connections has no derivative"),
                ("capturable", "a step that replaces connections cannot be part of a CUDA graph"),
            ):
                if group.get(option):
                    return f"has {option}=True, but {reason}"
    return None


def is_schedule_free(optimizer: optim.Optimizer) -> bool:
    """Whether it swaps θ for an average of θ in ``optimizer.eval()``."""
    return any(
        "ScheduleFree" in kind.__name__ for one in (optimizer, *_inner(optimizer)) for kind in type(one).__mro__
    )


def is_wrapper(optimizer: optim.Optimizer) -> bool:
    """Whether it wraps another optimiser."""
    return bool(_inner(optimizer))


def carried_tensors(optimizer: optim.Optimizer, theta: nn.Parameter) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of everything with one number for each connection, each once; an error where a shape is another."""
    seen = {theta.data_ptr()}
    for one in (optimizer, *_inner(optimizer)):
        for path, value in _leaves(one.state.get(theta, {}), (), _DEPTH):
            for row in _rows(one, path, value, theta):
                if row.data_ptr() not in seen:
                    seen.add(row.data_ptr())
                    yield path[0], row
        for path, value in _outside(one, theta):
            if value.data_ptr() not in seen and value.shape == theta.shape and value is not theta.grad:
                seen.add(value.data_ptr())
                _require_unique(one, path, theta)
                yield path[0], _contiguous(one, path, value)


def _inner(optimizer: optim.Optimizer) -> list[optim.Optimizer]:
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


def _leaves(value: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """The tensors in nested containers, with the names that lead to them."""
    if isinstance(value, Tensor):
        yield path or ("",), value
    elif depth and isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, (*path, str(name)), depth - 1)
    elif depth and isinstance(value, list | tuple | deque):
        for number, part in enumerate(value):
            yield from _leaves(part, (*path, str(number)), depth - 1)


def _rows(optimizer: optim.Optimizer, path: tuple[str, ...], value: Tensor, theta: nn.Parameter) -> list[Tensor]:
    """The rows of a piece of state that have one number for each connection; a single number belongs to none."""
    if value.shape == theta.shape:
        return [_contiguous(optimizer, path, value)]
    if value.numel() <= 1:
        return []
    if theta.dim() == 1 and value.dim() == 2 and value.shape[1] == theta.numel() and len(value) <= _MOST_ROWS:
        return list(_contiguous(optimizer, path, value))
    raise ValueError(
        f"optimizer (={type(optimizer).__name__}) keeps {'/'.join(path)!r} of shape {tuple(value.shape)}, which must be "
        f"{tuple(theta.shape)} to move with connections: use an optimiser that keeps its state by element"
    )


def _contiguous(optimizer: optim.Optimizer, path: tuple[str, ...], value: Tensor) -> Tensor:
    if not value.is_contiguous():
        raise ValueError(
            f"optimizer (={type(optimizer).__name__}) keeps {'/'.join(path)!r} scattered in memory (strides "
            f"{value.stride()}): it must be contiguous to move with connections"
        )
    return value


def _outside(optimizer: optim.Optimizer, theta: nn.Parameter) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """The tensors in an optimiser's own attributes, or in its state under another name than a parameter; in tables by
    parameter only what is θ's."""
    shared = [(str(key), value) for key, value in optimizer.state.items() if not isinstance(key, Tensor)]
    for name, value in (*vars(optimizer).items(), *shared):
        if name in _NOT_STATE:
            continue
        if isinstance(value, Mapping) and any(isinstance(key, Tensor) for key in value):
            mine = [part for key, part in value.items() if key is theta]
            yield from _leaves(mine, (name,), _DEPTH)
        elif isinstance(value, Mapping) and id(theta) in value:
            yield from _leaves(value[id(theta)], (name,), _DEPTH)
        else:
            yield from _leaves(value, (name,), _DEPTH)


def _require_unique(optimizer: optim.Optimizer, path: tuple[str, ...], theta: nn.Parameter) -> None:
    same = [p for group in optimizer.param_groups for p in group["params"] if p.shape == theta.shape]
    if len(same) > 1:
        raise ValueError(
            f"optimizer (={type(optimizer).__name__}) keeps {'/'.join(path)!r} outside of its state, where {len(same)} "
            "parameters of the same shape cannot be told apart: use an optimiser that keeps its state by parameter"
        )


def starts(optimizer: optim.Optimizer, group: Mapping[str, Any], theta: nn.Parameter) -> dict[str, float]:
    """With what pieces of state start for a newborn, by name; what is not here starts at 0.

    So do moments, and whatever is a copy or an average of θ (slow weights, schedule-free z): θ of a newborn is 0.
    """
    found: dict[str, float] = {}
    for one in (optimizer, *_inner(optimizer)):
        if isinstance(one, optim.Adagrad):  # makes its state before the first step
            found["sum"] = float(group["initial_accumulator_value"])
        elif not is_wrapper(one):  # a wrapper's own are slow weights and the like
            found |= first_values(one, group, theta)
    return found
