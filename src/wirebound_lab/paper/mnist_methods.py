"""MNIST with all methods at rising connectivity, each with settings of its own choice.

    python -m wirebound_lab.paper.mnist_methods choose --out results/mnist/methods --jobs 2
    python -m wirebound_lab.paper.mnist_methods run --out results/mnist/methods --jobs 2

784-300-100-10, the same epochs and batches for all. ``choose`` trains a small grid for each method on 50,000 examples
and looks at the 10,000 others; ``run`` trains on all with what was chosen and looks at the test set, once for each
seed. Finished runs are not repeated, so both may be interrupted.

Methods that are told their size (deep-r, fixed, set, rigl, constant-rate, pruning) get settings chosen at 1 % for the
lower connectivities and at 5 % for the others. soft-deep-r and l1-shrinkage find their size themselves: they are
scanned over what decides it (θ_min by the paper's rule for an aimed connectivity, and α), and for each connectivity
the best of those runs counts that stayed within it: soft-deep-r with the most connections it ever had, ℓ1-shrinkage
and pruning, which start dense, with those at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wirebound.engine.modules import DivergedError
from wirebound.methods import METHODS
from wirebound.methods.soft_rules import temperature_from_l1, theta_min_for
from wirebound_lab.paper.figure import Outcomes
from wirebound_lab.paper.job import TrainJob
from wirebound_lab.paper.mnist_methods_table import markdown, table_line
from wirebound_lab.paper.runner import run_jobs
from wirebound_lab.run import TrainConfig
from wirebound_lab.run.config import ConfigError, make_config

LEVELS = (0.003, 0.01, 0.02, 0.05, 0.1, 0.2)
CHOICE_LEVELS = (0.01, 0.05)
SEEDS = (0, 1, 2)
HELD_OUT = 10_000
COMMON: dict[str, Any] = {
    "data": "mnist",
    "hidden": [300, 100],
    "bias": True,
    "epochs": 12,
    "batch_size": 100,
    "schedule": "cosine",
    "final_lr": 0.001,
    "init": "sparse-fan-in",
    "allocation": "erdos-renyi",
}
# The grid of each method; a method that is not in METHODS yet is left out.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "deep-r": {"lr": (1.0, 2.0), "l1": (2e-5, 1e-4, 3e-4)},
    "fixed": {"lr": (0.3, 1.0, 2.0)},
    "set": {"lr": (0.3, 1.0), "fraction": (0.1, 0.3)},
    "rigl": {"lr": (0.3, 1.0), "fraction": (0.1, 0.3)},
    "constant-rate": {"lr": (2.0,), "l1": (5e-5, 2e-4), "rate": (1e-5, 1e-4)},
    "pruning": {"lr": (0.3, 1.0), "weight_decay": (0.0, 1e-4)},
    "dense": {"lr": (0.3, 1.0)},
    "soft-deep-r": {"lr": (1.0,), "l1": (1e-5, 1e-4), "aim": (0.0003, 0.001, 0.003, 0.007, 0.015, 0.03, 0.06)},
    "l1-shrinkage": {"lr": (0.3, 1.0), "l1": tuple(10 ** (-n / 2) for n in (5, 6, 7, 8, 9))},
}
SCANNED = ("soft-deep-r", "l1-shrinkage")


def points(method: str) -> Iterator[dict[str, Any]]:
    """The grid of a method."""
    grid = GRIDS[method]
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def settings(method: str, point: dict[str, Any], level: float | None, base: dict[str, Any]) -> TrainConfig:
    """The run of a method at one point of its grid; ``level`` where the method is told its connectivity."""
    own: dict[str, Any] = {**point, "method": method, "connectivity": level}
    aim = own.pop("aim", None)
    if aim is not None:
        temperature = temperature_from_l1(own["l1"], own["lr"])
        own |= {"connectivity": aim, "noise": own["l1"] / 3, "theta_min": theta_min_for(aim, temperature, own["l1"])}
    return make_config({**COMMON, **base}, own)


def name_of(method: str, point: dict[str, Any], level: float | None, seed: int) -> str:
    parts = [method, *([] if level is None else [f"{level:g}"]), *(f"{k}={v:g}" for k, v in point.items()), f"s{seed}"]
    return "-".join(parts)


def _run_all(configs: Mapping[str, TrainConfig], out: Path, jobs: int) -> Outcomes:
    return run_jobs([TrainJob(name, config) for name, config in configs.items()], out, jobs, print)


def levels_of(method: str, levels: Sequence[float]) -> Sequence[float | None]:
    """The connectivities that a method is told; None for those that are not told."""
    return (None,) if method in SCANNED or method == "dense" else levels


# Choosing


def choose(methods: Sequence[str], out: Path, jobs: int, base: dict[str, Any]) -> list[dict[str, Any]]:
    """What each point of each grid reaches on held-out examples."""
    plan = {
        name_of(method, point, level, 0): (method, point, level)
        for method in methods
        for level in levels_of(method, CHOICE_LEVELS)
        for point in points(method)
    }
    configs = {name: settings(*what, {**base, "seed": 0}) for name, what in plan.items()}
    done = _run_all(configs, out / "choice", jobs)
    for name, why in done.lost.items():
        print(f"not to be chosen: {name}: {why}")
    return [
        {
            "method": method,
            "level": level,
            "point": point,
            "accuracy": done.summaries[name]["test_accuracy"],
            "connectivity": done.summaries[name]["connectivity"],
            "seconds": done.summaries[name]["seconds"],
        }
        for name, (method, point, level) in plan.items()
        if name in done.summaries
    ]


def best(choices: Sequence[dict[str, Any]], method: str, level: float) -> dict[str, Any] | None:
    """The point of a method's grid for a connectivity; None where none of its runs was within it."""
    tried = [choice for choice in choices if choice["method"] == method]
    if method in SCANNED:
        tried = [choice for choice in tried if choice["connectivity"] <= level]
    elif method != "dense":
        told = [choice["level"] for choice in tried]
        near = max((t for t in told if t <= level), default=min(told, default=0.0))
        tried = [choice for choice in tried if choice["level"] == near]
    if not tried:
        return None
    chosen: dict[str, Any] = max(tried, key=lambda choice: choice["accuracy"])["point"]
    return chosen


# The test


def run(
    methods: Sequence[str],
    levels: Sequence[float],
    seeds: Sequence[int],
    choices: Sequence[dict[str, Any]],
    out: Path,
    jobs: int,
    base: dict[str, Any],
) -> list[dict[str, Any]]:
    """One line for each method and connectivity."""
    cells = [(method, 1.0) for method in methods if method == "dense"]
    cells += [(method, level) for method in methods if method != "dense" for level in levels]
    configs: dict[str, TrainConfig] = {}
    names: dict[tuple[str, float], list[str]] = {}
    for method, level in cells:
        point = best(choices, method, level)
        if point is None:
            continue
        told = level if levels_of(method, levels) == levels else None
        names[method, level] = [name_of(method, point, told, seed) for seed in seeds]
        for name, seed in zip(names[method, level], seeds, strict=True):
            configs[name] = settings(method, point, told, {**base, "seed": seed})
    done = _run_all(configs, out / "test", jobs)
    if done.lost:
        raise DivergedError("; ".join(f"{name}: {why}" for name, why in done.lost.items()))
    return [
        table_line(method, level, best(choices, method, level), [done.summaries[name] for name in names.get((method, level), ())])
        for method, level in cells
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="MNIST with all methods at rising connectivity.")
    parser.add_argument("what", choices=("choose", "run"), help="compare settings on held-out data, or run the test")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each")
    parser.add_argument("--methods", nargs="*", choices=tuple(GRIDS), help="only these")
    parser.add_argument("--levels", nargs="*", type=float, default=LEVELS, help="connectivities of the test")
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, default=COMMON["epochs"], help="of every run")
    parser.add_argument("--data", default=COMMON["data"], help="another data set, to try the experiment out")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="examples to choose settings on")
    options = parser.parse_args(arguments)
    methods = [method for method in options.methods or GRIDS if method in METHODS]
    base = {"epochs": options.epochs, "data": options.data}
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "choice.json"
    choices = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    if options.what == "choose":
        found = choose(methods, options.out, options.jobs, {**base, "validation": options.held_out})
        choices = [choice for choice in choices if choice["method"] not in methods] + found
        kept.write_text(json.dumps(choices, indent=1) + "\n", encoding="utf-8")
        print(f"choices: {kept}")
        return 0
    missing = set(methods) - {choice["method"] for choice in choices}
    if missing:
        raise ConfigError(f"{kept} must hold choices for {', '.join(sorted(missing))}: run choose first")
    lines = run(methods, tuple(options.levels), options.seeds, choices, options.out, options.jobs, base)
    (options.out / "table.json").write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    (options.out / "table.md").write_text(markdown(lines), encoding="utf-8")
    print(f"table: {options.out / 'table.md'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
