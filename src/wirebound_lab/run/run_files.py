"""The files of a finished run, read as input like any other: they may be damaged, or of someone else.

Who needs a value of ``summary.json`` asks for it by name, and gets it checked or an error that names file, key and value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

from wirebound_lab.run.record import METRICS, RunFolderError

SUMMARY = "summary.json"
_LARGEST = 1 << 63
_SHOWN = 60  # letters of a wrong value in an error


def is_number(value: Any) -> TypeGuard[float]:
    """Whether this is a finite number that a float holds; a whole number of a thousand digits is none."""
    return math.isfinite(value) if isinstance(value, float) else type(value) is int and abs(value) < _LARGEST


def is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _LARGEST


def _is_layer(value: Any) -> bool:
    if not isinstance(value, dict) or not all(is_count(value.get(name)) for name in ("possible", "initial", "final")):
        return False
    shape = value.get("shape")
    return isinstance(shape, list) and len(shape) == 2 and all(map(is_count, shape))


def _is_paper(value: Any) -> bool:
    return isinstance(value, dict) and is_number(value.get("accuracy")) and is_count(value.get("epochs"))


_NUMBER = (is_number, "a finite number")
_COUNT = (is_count, "a count")
_TEXT = (lambda value: isinstance(value, str), "a text")
# Of each value that somebody reads: whether it is right, and the rule in words.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("test_accuracy", "test_loss", "seconds", "training_seconds", "connectivity"), _NUMBER),
    **dict.fromkeys(("min_active", "max_active", "possible"), _COUNT),
    **dict.fromkeys(("evaluated_on", "path"), _TEXT),
    "steps": (lambda value: is_count(value) and value > 0, "a count above 0"),
    "budget": (lambda value: value is None or is_count(value), "a count or null"),
    "layers": (lambda v: _is_list(v, _is_layer) and bool(v), "a list of layers with shape, possible, initial and final"),
    "ledger": (lambda v: _is_list(v, lambda e: isinstance(e, dict) and is_count(e.get("bytes"))), "a list of parts with their bytes"),
    "paper": (_is_paper, "an object with accuracy and epochs"),
}


def _is_list(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(of, value))


def check_summary(found: Any, path: Path, *needed: str) -> dict[str, Any]:
    """``found``, read from ``path``, if it is an object in which each needed value is there and right; so must be the
    figure of the paper, which only some have."""
    if not isinstance(found, dict):
        raise RunFolderError(f"{path} must hold one object, not {_kind(found)}: the file is damaged")
    for name in (*needed, "paper") if "paper" in found else needed:
        fits, rule = _RULES[name]
        if name not in found:
            raise RunFolderError(f"{path} must hold {name!r}: the file is damaged")
        if not fits(found[name]):
            raise RunFolderError(f"{path}: {name} (={_shown(found[name])}) must be {rule}: the file is damaged")
    return found


def read_summary(folder: Path, *needed: str) -> dict[str, Any]:
    """``summary.json`` of a run folder, with the needed values checked."""
    path = folder / SUMMARY
    return check_summary(_read(path, json.loads), path, *needed)


def read_layer_counts(folder: Path) -> list[list[int]]:
    """Connections of each layer after each epoch, as ``metrics.jsonl`` has them."""
    path = folder / METRICS
    records = _read(path, lambda text: [json.loads(line) for line in text.splitlines()])
    epochs: list[list[int]] = []
    for number, record in enumerate(records, start=1):
        if isinstance(record, dict) and record.get("kind") == "epoch":
            counts = record.get("layer_active")
            if not isinstance(counts, list) or not counts or not all(map(is_count, counts)):
                raise RunFolderError(f"{path}, line {number}: layer_active (={_shown(counts)}) must be counts")
            if epochs and len(counts) != len(epochs[0]):
                raise RunFolderError(f"{path}, line {number}: layer_active must have {len(epochs[0])} counts")
            epochs.append(counts)
    return epochs


def _read(path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} cannot be read: {type(error).__name__}: {str(error)[:120]}") from error


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
