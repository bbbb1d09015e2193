"""The space that a search draws from, in Optuna's words."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from wirebound_lab.run.config import ConfigError, TrainConfig
from wirebound_lab.sweep.plan import Plan

_TYPES = {field.name: str(field.type).replace(" | None", "") for field in dataclasses.fields(TrainConfig)}


def suggest(asked: Any, plan: Plan) -> dict[str, Any]:
    """One point of the plan's space: a number from each range, a value from each list."""
    point: dict[str, Any] = {}
    for name, found in plan.search.items():
        if _TYPES[name] == "int":
            point[name] = asked.suggest_int(name, int(found.low), int(found.high), log=found.log)
        else:
            point[name] = asked.suggest_float(name, found.low, found.high, log=found.log)
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
        if _TYPES[name] not in ("int", "float"):
            raise ConfigError(f"range of {name} must be of a setting that is a number, not {_TYPES[name]}")
        if _TYPES[name] == "int" and not (found.low.is_integer() and found.high.is_integer()):
            raise ConfigError(f"range of {name} (={found.low}:{found.high}) must be of whole numbers")
    if len(plan.grid.get("seed", [0])) > 1:
        raise ConfigError(
            f"seed (={plan.grid['seed']}) must be one number in a search; run what it finds with several seeds afterwards"
        )
    ends = [{name: value for name, value in zip(plan.search, bounds, strict=True)} for bounds in _ends(plan)]
    for end in ends:
        typed = {name: int(value) if _TYPES[name] == "int" else value for name, value in end.items()}
        config = plan.config({**{name: values[0] for name, values in plan.grid.items()}, **typed})
        if config.validation == 0:
            raise ConfigError(
                "validation (=0) must be > 0 in a search: settings are chosen on held-out training data, "
                "never on the test set"
            )


def _ends(plan: Plan) -> list[tuple[float, ...]]:
    return [tuple(r.low for r in plan.search.values()), tuple(r.high for r in plan.search.values())]
