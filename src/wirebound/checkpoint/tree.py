"""Nested state as JSON and tensors: dicts, lists, tuples, numbers and texts come back as what they were.

A tensor becomes ``{"$": "tensor", "name": NAME}`` and is stored under that name. What JSON cannot say has a ``"$"``
too: tuples, dicts with other keys than text, counters, numbers that are not finite. Nothing else is accepted, and
reading makes nothing else: no class is named, imported or called.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from wirebound.checkpoint.container import CheckpointError

_MARK = "$"
_MOST = 1 << 63  # no number of training is larger, and larger ones do not fit into what reads them
_NOT_FINITE = ("nan", "inf", "-inf")


def encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """``value`` as JSON; its tensors are put into ``tensors``, named after their place under ``name``."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_MARK: "float", "value": str(float(value))}
    if isinstance(value, Tensor):
        if name in tensors:
            raise CheckpointError(f"two tensors of a checkpoint are named {name!r}: rename one of them")
        tensors[name] = value.detach()
        return {_MARK: "tensor", "name": name}
    if isinstance(value, list | tuple):
        items = [encode(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {_MARK: "tuple", "items": items}
    if isinstance(value, Mapping):
        if any(type(key) not in (str, int) for key in value):
            raise CheckpointError(f"{name} has keys that cannot be kept ({listed(value)}): they must be texts or whole numbers")
        found = {key: encode(item, f"{name}/{key}", tensors) for key, item in value.items()}
        if not isinstance(value, Counter) and all(isinstance(key, str) for key in value) and _MARK not in value:
            return found
        pairs = [[key, item] for key, item in found.items()]
        return {_MARK: "counter" if isinstance(value, Counter) else "dict", "items": pairs}
    raise CheckpointError(
        f"{name} (={type(value).__name__}) cannot be kept: only tensors, numbers, texts, lists, tuples and dicts can"
    )


def decode(value: Any, name: str, tensor: Callable[[str], Tensor]) -> Any:
    """What ``encode`` was given; ``tensor`` finds a tensor by name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [decode(item, f"{name}/{i}", tensor) for i, item in enumerate(value)]
    assert isinstance(value, dict)  # all that a JSON reader gives besides
    if _MARK not in value:
        return {key: decode(item, f"{name}/{key}", tensor) for key, item in value.items()}
    match value:
        case {"$": "tensor", "name": str(place), **rest} if not rest:
            return tensor(place)
        case {"$": "float", "value": str(number), **rest} if not rest and number in _NOT_FINITE:
            return float(number)
        case {"$": "tuple", "items": list(items), **rest} if not rest:
            return tuple(decode(item, f"{name}/{i}", tensor) for i, item in enumerate(items))
        case {"$": "dict" | "counter" as kind, "items": list(items), **rest} if not rest:
            found: dict[Any, Any] = Counter() if kind == "counter" else {}
            for pair in items:
                if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (str, int):
                    raise CheckpointError(f"{name} must be pairs of a key and a value")
                if pair[0] in found:
                    raise CheckpointError(f"{name} has the key {pair[0]!r} twice")
                found[pair[0]] = decode(pair[1], f"{name}/{pair[0]}", tensor)
            return found
    raise CheckpointError(f"{name} is not a value of the format: {str(value)[:80]}")


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All that is neither dict nor list nor tuple in a nested value, each with its place."""
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(item, f"{name}/{str(key)[:40]}")
    else:
        yield name, value


def number_fault(value: Any, name: str) -> str | None:
    """Which number in a nested value cannot be one of training: NaN, or too large to be computed with; or None."""
    for place, leaf in leaves(value, name):
        if isinstance(leaf, float) and math.isnan(leaf):
            return f"{place} must be a number"
        if isinstance(leaf, int) and not -_MOST <= leaf < _MOST:
            return f"{place} must be a number of at most 64 bits"
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and bool(leaf.isnan().any()):
            return f"{place} must be numbers, has NaN"
    return None


def difference(mine: Any, theirs: Any, name: str) -> str | None:
    """How ``theirs`` differs from ``mine`` in kind: other keys, lengths, types or shapes; None where it fits.

    Values may differ, and where there is None, anything fits: state that comes later.
    """
    if mine is None:
        return None
    if isinstance(mine, Counter):
        fits = isinstance(theirs, Counter) and all(isinstance(count, int) for count in theirs.values())
        return None if fits else f"{name} must be counts"
    if isinstance(mine, Mapping):
        if not isinstance(theirs, Mapping) or set(mine) != set(theirs):
            return f"{name} must hold {listed(mine)}, holds {listed(theirs)}"
        return next((fault for key in mine if (fault := difference(mine[key], theirs[key], f"{name}/{key}"))), None)
    if isinstance(mine, list | tuple):
        if not isinstance(theirs, list | tuple) or len(mine) != len(theirs):
            return f"{name} must be {len(mine)} values, is {described(theirs)}"
        return difference(dict(enumerate(mine)), dict(enumerate(theirs)), name)
    if isinstance(mine, Tensor):
        fits = isinstance(theirs, Tensor) and theirs.shape == mine.shape and theirs.dtype == mine.dtype
    else:
        fits = _kind(mine) == _kind(theirs)
    return None if fits else f"{name} must be {described(mine)}, is {described(theirs)}"


def _kind(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple | Mapping):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, int) and not -_MOST <= value < _MOST:
        return "a number of more than 64 bits"
    return f"{_kind(value)} (={value!r})"[:80]


def listed(value: Any) -> str:
    """The first names of a dict or list, or what else it is."""
    if not isinstance(value, Mapping | list):
        return described(value)
    names = [str(key)[:40] for key in value]
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") or "nothing"
