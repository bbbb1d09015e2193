"""What a sweep runs: the settings that all trials share, the grid, and the ranges of a search."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wirebound.methods import METHODS, Setting
from wirebound_lab.run import config as runs
from wirebound_lab.run.config import METHOD, ConfigError, RunConfig, make_config

_LONGEST_NAME = 120
_TWINS = {"connectivity": "budget", "budget": "connectivity"}


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
    parts = re.findall(r"(?:\[[^\]]*\]|[^,])+|(?<=,)(?=,|$)", values)  # at the commas that are not inside brackets
    return name.replace("-", "_"), [_parse(part) for part in parts]


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


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def show(value: Any) -> str:
    """A value as it is written in names and tables."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "x".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Trial:
    """One run: its settings, and the name of its folder."""

    name: str
    config: RunConfig

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

    @property
    def known(self) -> dict[str, Setting]:
        """The settings that the runs of this plan may have."""
        task, method = (
            next((v for v in (*self.grid.get(name, ()), self.settings.get(name)) if v in there), default)
            for name, there, default in (("task", runs.tasks(), runs.TASK), ("method", METHODS, METHOD))
        )
        return runs.known_settings(task, method)

    def trials(self) -> list[Trial]:
        """The grid, each distinct run once; the settings of all are checked before the first runs."""
        found: dict[str, Trial] = {}
        for values in itertools.product(*self.grid.values()):
            config = self.config(dict(zip(self.grid, values, strict=True)))
            trial = Trial(name_of(config, self.varied), config)
            found.setdefault(trial.key, trial)
        return list(found.values())

    def config(self, point: Mapping[str, Any]) -> RunConfig:
        """The settings of one run of the sweep."""
        chosen = {**self.settings, **point}
        method = METHODS.get(chosen.get("method", METHOD))
        if method is not None and not method.sized_by:  # a run for each connectivity would be the same run
            chosen |= {"connectivity": None, "budget": None}
        return make_config(chosen)


def make_plan(
    preset: Mapping[str, Any], file: Path | None = None, grid: Mapping[str, list[Any]] | None = None,
    search: Mapping[str, Range] | None = None,
) -> Plan:  # fmt: skip
    """A plan from a preset, a file with the tables settings, grid and search, and what the command line adds."""
    tables = runs.read_settings(file) if file else {}
    unknown = set(tables) - {"settings", "grid", "search"}
    if unknown:
        raise ConfigError(f"sweep file (={file}) must have the tables settings, grid and search, not {sorted(unknown)}")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{name} (={table!r}) in the sweep file must be a table")
    settings = {**preset, **tables.get("settings", {})}
    runs.import_modules(settings.get("imports", ()))
    axes: dict[str, list[Any]] = {}
    for name, values in [*tables.get("grid", {}).items(), *(grid or {}).items()]:
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{name} (={values!r}) must be a list of values")
        axes.pop(_TWINS.get(name, ""), None)
        axes[name] = [value for i, value in enumerate(values) if value not in values[:i]]
    ranges = {name: read_range(name, table) for name, table in tables.get("search", {}).items()} | dict(search or {})
    axes = {name: values for name, values in axes.items() if name not in ranges}
    for name in [*axes, *ranges]:
        settings.pop(name, None)
        settings.pop(_TWINS.get(name, ""), None)
    plan = Plan(settings, axes, ranges)
    runs.require_known(ranges, plan.known)
    return plan


def identity(config: RunConfig) -> dict[str, Any]:
    """The settings that make a run what it is; unlike a run that is resumed, a sweep may compare engines."""
    return config.identity(runs.WHERE)


def key_of(config: RunConfig) -> str:
    return hashlib.sha256(json.dumps(identity(config), sort_keys=True).encode()).hexdigest()[:16]


def name_of(config: RunConfig, varied: list[str]) -> str:
    """A folder's name that tells the run: method, size, what else is varied, seed."""
    sized = config.sized and (config.budget is not None or config.connectivity is not None)
    size = [f"k{config.budget}" if config.budget else f"{config.connectivity:g}"] if sized else []
    others = [n for n in varied if n not in ("method", "connectivity", "budget", "seed")]
    shown = [f"{n}={show(getattr(config, n))}" for n in others if hasattr(config, n)]
    name = re.sub(r"[^\w.=+-]", "_", "-".join([config.method, *size, *shown, f"s{config.seed}"]))
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{key_of(config)[:8]}"


def suggest(asked: Any, plan: Plan) -> dict[str, Any]:
    """One point of the plan's space, as Optuna's trial proposes it: a number from each range, a value from each list."""
    point: dict[str, Any] = {}
    for name, found in plan.search.items():
        ask, number = (asked.suggest_int, int) if _is_int(plan, name) else (asked.suggest_float, float)
        point[name] = ask(name, number(found.low), number(found.high), log=found.log)
    for name, values in plan.grid.items():
        if len(values) == 1:
            point[name] = values[0]
        else:  # Optuna's choices are plain values; ours may be lists
            point[name] = json.loads(asked.suggest_categorical(name, [json.dumps(value) for value in values]))
    return point


def check_search(plan: Plan) -> None:
    """Raise ``ConfigError`` unless a search over this plan makes sense."""
    if not plan.search:
        raise ConfigError("a search needs at least one range: --range NAME=LOW:HIGH[:log]")
    for name, found in plan.search.items():
        kind = plan.known[name].type.replace(" | None", "")
        if kind not in ("int", "float"):
            raise ConfigError(f"range of {name} must be of a setting that is a number, not {kind}")
        if kind == "int" and not (found.low.is_integer() and found.high.is_integer()):
            raise ConfigError(f"range of {name} (={found.low}:{found.high}) must be of whole numbers")
    if len(plan.grid.get("seed", [0])) > 1:
        raise ConfigError(f"seed (={plan.grid['seed']}) must be one number in a search; run what it finds with several seeds afterwards")
    for end in ("low", "high"):
        point: dict[str, Any] = {name: values[0] for name, values in plan.grid.items()}
        for name, found in plan.search.items():
            point[name] = int(getattr(found, end)) if _is_int(plan, name) else getattr(found, end)
        if plan.config(point).validation == 0:
            raise ConfigError("validation (=0) must be > 0 in a search: settings are never chosen on the test set")


def _is_int(plan: Plan, name: str) -> bool:
    return plan.known[name].type.startswith("int")
