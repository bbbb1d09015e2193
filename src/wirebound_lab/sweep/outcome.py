"""How trials ended: read from run folders, summed up over seeds, and written to ``sweep.json``."""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wirebound_lab.run.config import ConfigError, RunConfig, make_config, read_settings
from wirebound_lab.run.record import RunFolderError, read_summary
from wirebound_lab.sweep.plan import Plan, Trial, identity, key_of
from wirebound_lab.tables import deviation

FINISHED, FAILED, INTERRUPTED, RUNNING = "finished", "failed", "interrupted", "running"


@dataclass(frozen=True)
class Outcome:
    """The end of one trial."""

    state: str
    accuracy: float | None = None
    seconds: float | None = None
    evaluated_on: str | None = None
    folder: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Group:
    """Trials that differ in their seed only."""

    settings: dict[str, Any]
    seeds: list[int]
    mean: float
    spread: float | None  # sample standard deviation; None for a single seed
    low: float
    high: float
    seconds: float


def read_outcome(folder: Path) -> Outcome:
    """The outcome of a finished run folder."""
    summary = read_summary(folder, "test_accuracy", "seconds", "evaluated_on")
    return Outcome(FINISHED, float(summary["test_accuracy"]), float(summary["seconds"]), summary["evaluated_on"], str(folder))


def finished_runs(out: Path) -> dict[str, Path]:
    """The finished runs in a folder, by the key of their settings. A run folder has its name when it is complete."""
    found: dict[str, Path] = {}
    for path in sorted(out.glob("*/config.json")):
        if path.parent.name.endswith(".partial") or not (path.parent / "summary.json").exists():
            continue
        try:
            config = make_config(read_settings(path))
            read_outcome(path.parent)
        except (ConfigError, RunFolderError):
            continue  # not a run of ours, or of another version: it is left alone and run again under another name
        found.setdefault(key_of(config), path.parent)
    return found


def group(plan: Plan, trials: Sequence[Trial], outcomes: dict[str, Outcome]) -> list[Group]:
    """Mean and spread over seeds, in the order of the trials."""
    gathered: dict[str, list[tuple[RunConfig, Outcome]]] = {}
    for trial in trials:
        outcome = outcomes.get(trial.key)
        if outcome is not None and outcome.state == FINISHED:
            same = {name: value for name, value in identity(trial.config).items() if name != "seed"}
            gathered.setdefault(json.dumps(same, sort_keys=True), []).append((trial.config, outcome))
    groups = []
    for members in gathered.values():
        values = [outcome.accuracy or 0.0 for _, outcome in members]
        settings = {name: getattr(members[0][0], name, None) for name in plan.varied if name != "seed"}
        seconds = statistics.fmean(outcome.seconds or 0.0 for _, outcome in members)
        seeds, mean = [config.seed for config, _ in members], statistics.fmean(values)
        groups.append(Group(settings, seeds, mean, deviation(values), min(values), max(values), seconds))
    return groups


def write_sweep(out: Path, plan: Plan, trials: Sequence[Trial], outcomes: dict[str, Outcome]) -> Path:
    """``sweep.json``: what was asked, how each trial ended, and the groups; replaced as a whole."""

    def told(trial: Trial) -> dict[str, Any]:
        settings = {name: getattr(trial.config, name, None) for name in [*plan.grid, *plan.search]}
        return {"name": trial.name, "settings": settings, **asdict(outcomes.get(trial.key, Outcome("waiting")))}

    content = {
        "format": 1,
        "settings": plan.settings,
        "grid": plan.grid,
        "search": {name: asdict(found) for name, found in plan.search.items()},
        "trials": [told(trial) for trial in trials],
        "groups": [asdict(g) for g in group(plan, trials, outcomes)],
    }
    path, draft = out / "sweep.json", out / "sweep.json.draft"
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, path)
    return path
