"""How the values of a sweep are written on the command line: ``lr=0.05,0.5`` and ``lr=0.01:1:log``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wirebound_lab.run.config import ConfigError


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; drawn evenly, or evenly in their logarithm."""

    low: float
    high: float
    log: bool = False

    def check(self, name: str) -> Range:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError(f"range of {name} (={self.low}:{self.high}) must be finite and rise")
        if self.log and self.low <= 0:
            raise ConfigError(f"range of {name} (={self.low}:{self.high}:log) must start above 0 to be logarithmic")
        return self


def parse_values(text: str) -> tuple[str, list[Any]]:
    """``name=a,b,...``: numbers, true, false, null, [lists] and words."""
    name, _, values = text.partition("=")
    if not name or not values:
        raise ConfigError(f"set (={text!r}) must be NAME=VALUE[,VALUE...]")
    return name.replace("-", "_"), [_parse(part) for part in _split(values)]


def parse_range(text: str) -> tuple[str, Range]:
    """``name=low:high`` or ``name=low:high:log``."""
    name, _, bounds = text.partition("=")
    parts = bounds.split(":")
    try:
        low, high = float(parts[0]), float(parts[1])
        if not name or len(parts) > 3 or parts[2:] not in ([], ["log"]):
            raise ValueError
    except (ValueError, IndexError) as error:
        raise ConfigError(f"range (={text!r}) must be NAME=LOW:HIGH or NAME=LOW:HIGH:log") from error
    name = name.replace("-", "_")
    return name, Range(low, high, len(parts) == 3).check(name)


def read_range(name: str, found: Any) -> Range:
    """A range from a file: a table with low, high and, if so, log = true."""
    if not isinstance(found, Mapping) or not {"low", "high"} <= set(found) <= {"low", "high", "log"}:
        raise ConfigError(f"search.{name} (={found!r}) must be a table of low, high and, if so, log")
    low, high, log = found["low"], found["high"], found.get("log", False)
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in (low, high)) or not isinstance(log, bool):
        raise ConfigError(f"search.{name} (={found!r}) must have numbers low and high, and log true or false")
    return Range(float(low), float(high), log).check(name)


def _split(text: str) -> list[str]:
    """At the commas that are not inside brackets."""
    return re.findall(r"(?:\[[^\]]*\]|[^,])+|(?<=,)(?=,|$)", text)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def show(value: Any) -> str:
    """A value as it is written in names and tables."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "x".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
