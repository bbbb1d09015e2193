"""Resuming a run: where it stood, which settings it has, which may be changed, and whether a checkpoint belongs to it."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from wirebound.checkpoint import CheckpointError, load
from wirebound.engine.window import Tally
from wirebound.methods import Method
from wirebound_lab.run.config import FREE, ConfigError, RunConfig, make_config, read_settings
from wirebound_lab.run.observe import Observer
from wirebound_lab.run.record import RunFolder, RunFolderError, is_number, read_summary

if TYPE_CHECKING:
    from wirebound_lab.tasks.task import Task

# What is shown of a run at its end.
_COUNTS = ("connectivity", "budget", "possible", "min_active", "max_active", "ledger", "steps")
SHOWN = ("evaluated_on", "test_accuracy", *_COUNTS, "seconds", "training_seconds", "path")


@dataclass
class RunState:
    """Where a run stands: what the loop and the summary remember beside model, optimiser and method."""

    initial: list[int]  # connections of each layer before the first step
    epoch: int = 1  # the epoch that is running, from 1
    taken: int = 0  # its steps so far
    active_min: int = 0
    active_max: int = 0
    window: Tally = field(default_factory=Tally)
    whole: Tally = field(default_factory=Tally)  # of the epoch
    figures: dict[str, Any] = field(default_factory=dict)  # what the task has measured up to now, by name
    skipped: int = 0  # steps left out so far
    skips: int = 0  # in a row
    seconds: float = 0.0  # of all sittings
    training_seconds: float = 0.0
    metrics: int = 0  # bytes of metrics.jsonl
    layer_active: list[int] = field(default_factory=list)  # of each layer when the last window was recorded

    def __post_init__(self) -> None:
        self.layer_active = self.layer_active or list(self.initial)


_FITS: dict[type, tuple[Callable[[Any], bool], str]] = {  # of a field's type: whether a value is right, and the rule in words
    dict: (lambda found: all(map(is_number, found.values())), "finite numbers by name"),
    list: (lambda found: all(type(n) is int and n >= 0 for n in found), "counts"),
    int: (lambda found: 0 <= found < 1 << 62, "a count"),
    float: (math.isfinite, "a finite number"),
}


def read_state(stored: Any, layers: int, epochs: int, per_epoch: int) -> RunState:
    """The state in a checkpoint, if it is one of a run like this."""
    found: RunState = _filled(RunState([]), stored, "the state of the run")
    if len(found.initial) != layers or len(found.layer_active) != layers:
        raise CheckpointError(f"the state of the run must have the first and last counts of {layers} layers")
    if not (1 <= found.epoch <= epochs + 1 and 0 <= found.taken <= per_epoch):
        raise CheckpointError(f"the run must stand in one of {epochs} epochs of {per_epoch} steps")
    for tally in (found.window, found.whole):
        if len(tally.newborns) not in (0, layers) or (tally.step_from and not tally.newborns):
            raise CheckpointError(f"the state of the run must count newborns of {layers} layers")
    return found


def _filled(target: Any, stored: Any, name: str) -> Any:
    """``target`` with each field from ``stored``, which must have the same names and types."""
    names = [f.name for f in dataclasses.fields(target)]
    if not isinstance(stored, dict) or set(stored) != set(names):
        raise CheckpointError(f"{name} must hold {', '.join(names)}: it was written by another version; start the run again")
    for key in names:
        mine, value = getattr(target, key), stored[key]
        if isinstance(mine, Tally):
            value = _filled(Tally(), value, key)
        elif type(value) is not type(mine) or not _FITS[type(mine)][0](value):
            raise CheckpointError(f"{name}/{key} must be {_FITS[type(mine)][1]}")
        setattr(target, key, value)
    return target


def stored_settings(out: Path) -> dict[str, Any] | None:
    """What ``config.json`` of the run in ``out`` says, finished or not; None if there is no run."""
    for folder in (out, out.with_name(out.name + ".partial")):
        if os.path.lexists(folder / "config.json"):  # unlike Path.exists, no error for a name that is too long
            return read_settings(folder / "config.json")
    return None


def settings_to_resume(out: Path, stored: Mapping[str, Any], given: Mapping[str, Any]) -> RunConfig:
    """The ``stored`` settings of the run in ``out``, with those given now where they may differ."""
    mine = make_config(stored).as_dict()
    for name, value in given.items():
        if name not in FREE and mine.get(name) != value:
            said = f"{name} (={value!r}) must be that of the run in {out} (={mine.get(name)!r}) to resume it"
            raise ConfigError(f"{said}: omit it, or give the new run another name")
    return make_config(mine, {name: value for name, value in given.items() if name in FREE})


def check_same_run(config: RunConfig, out: Path) -> None:
    """Raise unless the run in ``out``, if there is one, has these settings."""
    stored = stored_settings(out)
    if stored is not None:
        settings_to_resume(out, stored, config.as_dict())


def path_to_go_on(folder: RunFolder | None, config: RunConfig) -> RunConfig:
    """The settings, with the module path where they leave it open and the checkpoint was written on it: no other rounding."""
    if folder is None or config.engine != "auto" or not os.path.exists(folder.checkpoint):
        return config
    extra = load(folder.checkpoint).extra
    return config.replace(engine="module") if isinstance(extra, dict) and extra.get("engine") == "module" else config


def load_checkpoint(
    folder: RunFolder, config: RunConfig, method: Method, engine: str, task: Task, observer: Observer | None = None
) -> RunState | None:
    """Put the last checkpoint of a run into its objects; None if it never came to one."""
    if not folder.checkpoint.exists():
        return None
    extra = load(folder.checkpoint, method=method).extra
    if not isinstance(extra, dict) or set(extra) != {"run", "config", "engine", "observed", "task"}:
        raise CheckpointError(f"{folder.checkpoint} was not written by this version of wirebound train: start the run again")
    if extra["config"] != config.identity():
        raise CheckpointError(f"{folder.checkpoint} is of a run with other settings than those in config.json")
    if extra["engine"] != engine and config.engine == "auto":
        here = "fused" if engine == "fused" else "module"
        said = f"was written on the {str(extra['engine'])[:20]} path, here the run would resume on the {engine} path"
        raise RunFolderError(f"{folder.checkpoint} {said} and round otherwise: pass --engine {here} to accept that")
    state = read_state(extra["run"], len(method.shapes), config.epochs, task.per_epoch)
    if (state.epoch - 1) * task.per_epoch + state.taken != method.steps:
        raise CheckpointError(f"{folder.checkpoint} must stand at step {method.steps} of the run")
    if observer is not None:
        observer.load(extra["observed"], state.epoch - 1)
    if extra["task"]:
        task.load_state(extra["task"])
    return state


def checkpoint_extra(config: RunConfig, engine: str, state: RunState, observer: Observer, task: Task) -> dict[str, Any]:
    """What a checkpoint of a run holds beside the method's own state."""
    run = {"run": dataclasses.asdict(state), "config": config.identity(), "engine": engine}
    return {**run, "observed": observer.state(), "task": task.state()}


def load_finished(folder: RunFolder, model: nn.Module) -> dict[str, Any]:
    """The summary of a run that has ended; its weights are put into ``model``."""
    place = folder.path if folder.path.exists() else folder.partial
    summary = read_summary(place, *SHOWN)
    load(place / "model.safetensors", model=model)
    return summary
