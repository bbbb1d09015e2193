"""Nested state as JSON and tensors: dicts, lists, tuples, numbers and texts come back as what they were.

A tensor becomes ``{"$": "tensor", "name": NAME}``; what else JSON cannot say has a ``"$"`` too. Nothing else is accepted,
and reading makes nothing else: no class is named, imported or called.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from wirebound.checkpoint.container import CheckpointError, require

_MARK = "$"
_MOST = 1 << 63  # no number of training is larger, and larger ones do not fit into what reads them


def encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """``value`` as JSON; its tensors are put into ``tensors``, named after their place under ``name``."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_MARK: "float", "value": str(float(value))}
    if isinstance(value, Tensor):
        require(name not in tensors, f"two tensors of a checkpoint are named {name!r}: rename one of them")
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
    known = "only tensors, numbers, texts, lists, tuples and dicts can"
    raise CheckpointError(f"{name} (={type(value).__name__}) cannot be kept: {known}")


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
        case {"$": "float", "value": str(number), **rest} if not rest and number in ("nan", "inf", "-inf"):
            return float(number)
        case {"$": "tuple", "items": list(items), **rest} if not rest:
            return tuple(decode(item, f"{name}/{i}", tensor) for i, item in enumerate(items))
        case {"$": "dict" | "counter" as kind, "items": list(items), **rest} if not rest:
            found: dict[Any, Any] = Counter() if kind == "counter" else {}
            for pair in items:
                known = isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (str, int)
                require(known, f"{name} must be pairs of a key and a value")
                require(pair[0] not in found, f"{name} has the key {pair[0]!r} twice")
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


def check_numbers(value: Any, name: str) -> None:
    """Refuse a number in a nested value that cannot be one of training: NaN, or too large to be computed with."""
    for place, leaf in leaves(value, name):
        require(not isinstance(leaf, float) or not math.isnan(leaf), f"{place} must be a number")
        require(not isinstance(leaf, int) or -_MOST <= leaf < _MOST, f"{place} must be a number of at most 64 bits")
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            require(not leaf.isnan().any(), f"{place} must be numbers, has NaN")


def check_like(mine: Any, theirs: Any, name: str) -> None:
    """Refuse ``theirs`` if it differs from ``mine`` in kind: other keys, lengths, types or shapes."""
    if isinstance(mine, Counter):
        fits = isinstance(theirs, Counter) and all(isinstance(count, int) for count in theirs.values())
        require(fits, f"{name} must be counts")
    elif isinstance(mine, Mapping):
        fits = isinstance(theirs, Mapping) and set(mine) == set(theirs)
        require(fits, f"{name} must hold {listed(mine)}, holds {listed(theirs)}")
        for key in mine:
            check_like(mine[key], theirs[key], f"{name}/{key}")
    elif isinstance(mine, list | tuple):
        fits = isinstance(theirs, list | tuple) and len(mine) == len(theirs)
        require(fits, f"{name} must be {len(mine)} values, is {described(theirs)}")
        check_like(dict(enumerate(mine)), dict(enumerate(theirs)), name)
    elif mine is not None:  # None: state that comes later
        fits = _kind(mine) == _kind(theirs)
        if isinstance(mine, Tensor):
            fits = isinstance(theirs, Tensor) and theirs.shape == mine.shape and theirs.dtype == mine.dtype
        if not fits:
            raise CheckpointError(f"{name} must be {described(mine)}, is {described(theirs)}")


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
