"""Values from JSON files, checked one by one: what is missing or not finite becomes None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LARGEST = 1e150  # squares and quotients of such numbers are still numbers, so an axis can be made for them


def number(value: object) -> float | None:
    """A finite float, or None; what is beyond any axis is no number, and what is below any is 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:  # an integer beyond the range of a float
        return None
    if not math.isfinite(result) or abs(result) > LARGEST:  # Python's JSON reader lets NaN and Infinity through
        return None
    return result if abs(result) >= 1 / LARGEST else 0.0


def whole(value: object) -> int | None:
    result = number(value)
    return int(result) if result is not None and result == int(result) else None


def numbers(value: object) -> tuple[float | None, ...]:
    """A list of numbers, or an empty tuple."""
    return tuple(number(item) for item in value) if isinstance(value, list) else ()


def counts(value: object) -> tuple[int, ...]:
    """The counts of a list: what is no count is zero, and what is no list is empty."""
    return tuple(max(0, int(item or 0)) for item in numbers(value))


def words(value: object) -> str | None:
    """A text that is not empty, or None; numbers are accepted as texts."""
    return None if value is None or isinstance(value, (dict, list)) else str(value).strip() or None


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """The JSON objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
