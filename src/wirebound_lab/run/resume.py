"""Going on with a run: which settings it has, which may be changed, and whether a checkpoint belongs to it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from wirebound.checkpoint import CheckpointError, load
from wirebound.methods import Method
from wirebound_lab.run.config import ConfigError, TrainConfig, make_config, read_settings
from wirebound_lab.run.observe import Observer
from wirebound_lab.run.record import RunFolder, RunFolderError
from wirebound_lab.run.run_files import read_summary
from wirebound_lab.run.run_state import RunState, read_state

# What may differ between the sittings of a run: none of it changes a number, or its change is asked for.
FREE = ("data_path", "threads", "checkpoint_every", "checkpoint_seconds", "on_nan", "engine")

# What is shown of a run at its end.
SHOWN = (
    *("evaluated_on", "test_accuracy", "connectivity", "budget", "possible", "min_active", "max_active"),
    *("ledger", "steps", "seconds", "training_seconds", "path"),
)


def stored_settings(out: Path) -> TrainConfig | None:
    """The settings of the run in ``out``, finished or not; None if there is no run."""
    for folder in (out, out.with_name(out.name + ".partial")):
        if os.path.lexists(folder / "config.json"):  # unlike Path.exists, no error for a name that is too long
            return make_config(read_settings(folder / "config.json"))
    return None


def settings_to_resume(out: Path, given: Mapping[str, Any]) -> TrainConfig | None:
    """The settings of the run in ``out``, with those given now where they may differ; None if there is no run."""
    stored = stored_settings(out)
    if stored is None:
        return None
    mine = stored.as_dict()
    for name, value in given.items():
        if name not in FREE and mine.get(name) != value:
            raise ConfigError(
                f"{name} (={value!r}) must be that of the run in {out} (={mine.get(name)!r}) to resume it: "
                "leave it away, or give the new run another name"
            )
    return make_config(mine, {name: value for name, value in given.items() if name in FREE})


def check_same_run(config: TrainConfig, out: Path) -> None:
    """Raise unless the run in ``out``, if there is one, has these settings."""
    settings_to_resume(out, {f.name: getattr(config, f.name) for f in dataclasses.fields(config)})


def path_to_go_on(folder: RunFolder | None, config: TrainConfig) -> TrainConfig:
    """The settings with the path of the checkpoint, where they leave the path open and any process can take it: a run of
    several processes, or one without kernels, goes on on the module path, not with other rounding."""
    if folder is None or config.engine != "auto" or not os.path.exists(folder.checkpoint):
        return config
    extra = load(folder.checkpoint).extra
    written_on_modules = isinstance(extra, dict) and extra.get("engine") == "module"
    return dataclasses.replace(config, engine="module") if written_on_modules else config


def load_checkpoint(
    folder: RunFolder,
    config: TrainConfig,
    method: Method,
    engine: str,
    per_epoch: int,
    observer: Observer | None = None,
) -> RunState | None:
    """Put the last checkpoint of a run into its objects; None if it never came to one."""
    if not folder.checkpoint.exists():
        return None
    found = load(folder.checkpoint, method=method)
    extra = found.extra
    if not isinstance(extra, dict) or set(extra) != {"run", "config", "engine", "observed"}:
        raise CheckpointError(f"{folder.checkpoint} was not written by wirebound train")
    settings = {name: value for name, value in config.as_dict().items() if name not in FREE}
    if extra["config"] != settings:
        raise CheckpointError(f"{folder.checkpoint} is of a run with other settings than those in config.json")
    if extra["engine"] != engine and config.engine == "auto":
        here = "fused" if engine == "fused" else "module"
        raise RunFolderError(
            f"{folder.checkpoint} was written on the {str(extra['engine'])[:20]} path, here the run would go on on the "
            f"{engine} path and round otherwise: pass --engine {here} to accept that"
        )
    state = read_state(extra["run"], len(method.shapes), config.epochs, per_epoch)
    if (state.epoch - 1) * per_epoch + state.taken != method.steps:
        raise CheckpointError(f"{folder.checkpoint} must stand at step {method.steps} of the run")
    if observer is not None:
        observer.load(extra["observed"], state.epoch - 1)
    return state


def checkpoint_extra(config: TrainConfig, engine: str, state: RunState, observer: Observer) -> dict[str, Any]:
    """What a checkpoint of a run holds beside the method's own state."""
    settings = {name: value for name, value in config.as_dict().items() if name not in FREE}
    return {"run": state.as_dict(), "config": settings, "engine": engine, "observed": observer.state()}


def load_finished(folder: RunFolder, model: nn.Module) -> dict[str, Any]:
    """The summary of a run that has ended; its weights are put into ``model``."""
    place = folder.path if folder.path.exists() else folder.partial
    summary = read_summary(place, *SHOWN)
    load(place / "model.safetensors", model=model)
    return summary
