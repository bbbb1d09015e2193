"""θ as one parameter for each layer, while an optimiser of torch steps: for layers with rates of their own.

The pieces and their state share the memory of θ and of its state; layers that are frozen have no piece.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.autograd.graph import increment_version

from wirebound.optim.carried import inner_optimizers, starts
from wirebound.wiring import Wiring

_Piece = tuple[int, int, nn.Parameter, dict[str, Any]]  # first, last, the parameter and its group
_Apart = tuple[dict[str, Any], int, dict[str, Any] | None, list[_Piece]]  # θ's group, place in it and state; the pieces


@contextmanager
def layers_apart(optimizer: optim.Optimizer, wirings: Sequence[Any]) -> Iterator[None]:
    """Within the block, the optimiser has the layers of wirings with rates of their own as separate parameters."""
    special = [w for w in wirings if isinstance(w, Wiring) and w.rates is not None and w.theta.grad is not None]
    if special and inner_optimizers(optimizer):
        under = f"optimizer (={type(optimizer).__name__}), which wraps another: give the inner one to the method"
        raise ValueError(f"layers of one budget cannot be frozen or have rates of their own under {under}")
    taken = [_take_apart(optimizer, wiring) for wiring in special]
    try:
        yield
    finally:
        for wiring, (group, place, state, pieces) in zip(special, taken, strict=True):
            _put_together(optimizer, wiring.theta, group, place, state, pieces)


def _take_apart(optimizer: optim.Optimizer, wiring: Wiring) -> _Apart:
    theta, rates = wiring.theta, wiring.layer_rates
    places = ((group, place, p) for group in optimizer.param_groups for place, p in enumerate(group["params"]))
    group, place = next((group, place) for group, place, parameter in places if parameter is theta)
    state = optimizer.state.pop(theta, None)
    del group["params"][place]
    pieces = []
    assert theta.grad is not None
    for layer, (first, last) in enumerate(itertools.pairwise(wiring.bounds)):
        if rates.frozen[layer] or first == last:
            continue
        parameter = nn.Parameter(theta.detach()[first:last])
        parameter.grad = theta.grad[first:last]
        own = {**group, "params": [parameter], "lr": group["lr"] * rates.lr[layer]}
        if "weight_decay" in group:
            own["weight_decay"] = group["weight_decay"] * rates.weight_decay[layer]
        if state is not None:
            optimizer.state[parameter] = _part(state, first, last, theta.numel())
        optimizer.param_groups.append(own)
        pieces.append((first, last, parameter, own))
    return group, place, state, pieces


def _put_together(
    optimizer: optim.Optimizer, theta: nn.Parameter, group: dict[str, Any], place: int, state: dict[str, Any] | None,
    pieces: list[_Piece],
) -> None:  # fmt: skip
    group["params"].insert(place, theta)
    optimizer.param_groups[:] = [g for g in optimizer.param_groups if not any(g is own for *_, own in pieces)]
    for first, last, parameter, _ in pieces:
        _write(theta.detach()[first:last], parameter.detach())
    increment_version(theta)
    parts = [(first, last, optimizer.state.pop(parameter, None)) for first, last, parameter, _ in pieces]
    if known := [part for part in parts if part[2] is not None]:
        clean = starts(optimizer, group, theta) if state is None else {}
        state = _joined(state, known, theta.numel(), "", clean)
    if state is not None:
        optimizer.state[theta] = state


def _part(value: Any, first: int, last: int, count: int) -> Any:
    """What a piece has of the whole's state: views of tensors by element, copies of single numbers."""
    if isinstance(value, Tensor):
        return value[first:last] if value.shape == (count,) else value.clone()
    if isinstance(value, dict):
        return {name: _part(part, first, last, count) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_part(part, first, last, count) for part in value)
    return value


def _joined(whole: Any, parts: list[tuple[int, int, Any]], count: int, name: str, clean: Mapping[str, float]) -> Any:
    """The whole's state after the pieces have stepped; what it lacks is made, with clean values for those without."""
    first, last, one = parts[0]
    if isinstance(one, Tensor) and one.shape == (last - first,) and (whole is None or whole.shape == (count,)):
        if whole is None:
            whole = torch.full((count,), clean.get(name, 0.0), dtype=one.dtype, device=one.device)
        for a, b, part in parts:
            _write(whole[a:b], part)
        return whole
    if isinstance(one, dict):
        before = whole if isinstance(whole, dict) else {}
        slices = {key: [(a, b, part[key]) for a, b, part in parts] for key in one}
        return {key: _joined(before.get(key), slices[key], count, name or str(key), clean) for key in one}
    if isinstance(one, list | tuple):
        known = whole if isinstance(whole, list | tuple) and len(whole) == len(one) else [None] * len(one)
        rows = ([(a, b, part[i]) for a, b, part in parts] for i in range(len(one)))
        return type(one)(_joined(before, row, count, name, clean) for before, row in zip(known, rows, strict=True))
    return one


def _write(target: Tensor, value: Tensor) -> None:
    """``target ← value``, unless they are the same memory."""
    if target.data_ptr() != value.data_ptr():
        target.copy_(value)
