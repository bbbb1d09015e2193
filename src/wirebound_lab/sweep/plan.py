"""What a sweep runs: the settings that all trials share, the grid, and the ranges of a search."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wirebound_lab.run.config import UNSIZED, ConfigError, TrainConfig, make_config, read_settings
from wirebound_lab.sweep.values import Range, read_range, show

# Where a run computes, finds its data and how often it is kept does not change what it is.
_NOT_IDENTITY = ("threads", "data_path", "checkpoint_every", "checkpoint_seconds")
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Trial:
    """One run: its settings, and the name of its folder."""

    name: str
    config: TrainConfig

    @property
    def key(self) -> str:
        """The same for runs that would come out the same."""
        return key_of(self.config)


@dataclass(frozen=True)
class Plan:
    """Shared settings, lists of values that are combined, and ranges that a search draws from."""

    settings: dict[str, Any]
    grid: dict[str, list[Any]]
    search: dict[str, Range] = field(default_factory=dict)

    @property
    def varied(self) -> list[str]:
        """The settings with more than one value, in the order in which they were given."""
        return [*(name for name, values in self.grid.items() if len(values) > 1), *self.search]

    def trials(self) -> list[Trial]:
        """The grid, each distinct run once; the settings of all are checked before the first runs."""
        found: dict[str, Trial] = {}
        for point in self._points():
            config = self.config(point)
            trial = Trial(name_of(config, self.varied), config)
            found.setdefault(trial.key, trial)
        return list(found.values())

    def config(self, point: Mapping[str, Any]) -> TrainConfig:
        """The settings of one run of the sweep."""
        chosen = {**self.settings, **point}
        if chosen.get("method") in UNSIZED:  # has no budget: a run for each connectivity would be the same run
            chosen = {**chosen, "connectivity": None, "budget": None}
        return make_config(chosen)

    def _points(self) -> Iterator[dict[str, Any]]:
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))


def make_plan(
    preset: Mapping[str, Any],
    file: Path | None = None,
    grid: Mapping[str, list[Any]] | None = None,
    search: Mapping[str, Range] | None = None,
) -> Plan:
    """A plan from a preset, a file with the tables settings, grid and search, and what the command line adds."""
    tables = read_settings(file) if file else {}
    unknown = set(tables) - {"settings", "grid", "search"}
    if unknown:
        raise ConfigError(f"sweep file (={file}) must have the tables settings, grid and search, not {sorted(unknown)}")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{name} (={table!r}) in the sweep file must be a table")
    settings = {**preset, **tables.get("settings", {})}
    axes: dict[str, list[Any]] = {}
    for name, values in [*tables.get("grid", {}).items(), *(grid or {}).items()]:
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{name} (={values!r}) must be a list of values")
        for twin in _TWINS.get(name, ()):
            axes.pop(twin, None)
        axes[name] = [value for i, value in enumerate(values) if value not in values[:i]]
    ranges = {name: read_range(name, table) for name, table in tables.get("search", {}).items()}
    ranges.update(search or {})
    for name in ranges:
        axes.pop(name, None)
    known = TrainConfig().as_dict()
    for name in ranges:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}; known are {', '.join(known)}")
    for name in [*axes, *ranges]:
        settings.pop(name, None)
        for twin in _TWINS.get(name, ()):
            settings.pop(twin, None)
    return Plan(settings, axes, ranges)


_TWINS = {"connectivity": ("budget",), "budget": ("connectivity",)}


def identity(config: TrainConfig) -> dict[str, Any]:
    """The settings that make a run what it is."""
    return {name: value for name, value in config.as_dict().items() if name not in _NOT_IDENTITY}


def key_of(config: TrainConfig) -> str:
    text = json.dumps(identity(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def name_of(config: TrainConfig, varied: list[str]) -> str:
    """A folder's name that tells the run: method, size, what else is varied, seed."""
    sized = config.method not in UNSIZED and (config.budget is not None or config.connectivity is not None)
    size = [f"k{config.budget}" if config.budget else f"{config.connectivity:g}"] if sized else []
    others = [n for n in varied if n not in ("method", "connectivity", "budget", "seed")]
    parts = [config.method, *size, *(f"{n}={show(getattr(config, n))}" for n in others), f"s{config.seed}"]
    name = re.sub(r"[^\w.=+-]", "_", "-".join(parts))
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{key_of(config)[:8]}"
