"""MNIST with all methods at rising connectivity, each with settings of its own choice.

    python -m wirebound_lab.paper.mnist_methods choose --out results/mnist/methods --jobs 2
    python -m wirebound_lab.paper.mnist_methods run --out results/mnist/methods --jobs 2

784-300-100-10, the same epochs and batches for all. ``choose`` trains a small grid for each method on 50,000 examples
and measures the 10,000 others; ``run`` trains on all with the chosen settings and measures the test set once a seed.

Methods with a budget get settings chosen at 1 % for the lower connectivities and at 5 % for the others. soft-deep-r and
l1-shrinkage are scanned over what decides their size; for each connectivity the best run that stayed within it counts:
soft-deep-r by the most connections it ever had, ℓ1-shrinkage and pruning, which start dense, by those at the end.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wirebound.methods import METHODS
from wirebound.methods.soft_rules import temperature_from_l1, theta_min_for
from wirebound_lab.paper.study import accuracy_line, read_json, run_configs, study_parser, write_study
from wirebound_lab.run import RunConfig
from wirebound_lab.run.config import ConfigError, make_config
from wirebound_lab.tables import markdown_table, plus_minus

Point = dict[str, Any]  # settings
LEVELS, CHOICE_LEVELS = (0.003, 0.01, 0.02, 0.05, 0.1, 0.2), (0.01, 0.05)
SEEDS = (0, 1, 2)
HELD_OUT = 10_000
COMMON: dict[str, Any] = {
    "data": "mnist", "hidden": [300, 100], "bias": True, "epochs": 12, "batch_size": 100, "schedule": "cosine",
    "final_lr": 0.001, "init": "sparse-fan-in", "allocation": "erdos-renyi",
}  # fmt: skip
# The grid of each method; a method that is not in METHODS is left out.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "deep-r": {"lr": (1.0, 2.0), "l1": (2e-5, 1e-4, 3e-4)},
    "fixed": {"lr": (0.3, 1.0, 2.0)},
    "set": {"lr": (0.3, 1.0), "fraction": (0.1, 0.3)},
    "rigl": {"lr": (0.3, 1.0), "fraction": (0.1, 0.3)},
    "gse": {"lr": (0.3, 1.0), "fraction": (0.1, 0.3)},
    "cht": {"lr": (0.3, 1.0), "fraction": (0.1, 0.3)},
    "constant-rate": {"lr": (2.0,), "l1": (5e-5, 2e-4), "rate": (1e-5, 1e-4)},
    "pruning": {"lr": (0.3, 1.0), "weight_decay": (0.0, 1e-4)},
    "top-k": {"lr": (0.3, 1.0)},
    "dense": {"lr": (0.3, 1.0)},
    "soft-deep-r": {"lr": (1.0,), "l1": (1e-5, 1e-4), "aim": (0.0003, 0.001, 0.003, 0.007, 0.015, 0.03, 0.06)},
    "l1-shrinkage": {"lr": (0.3, 1.0), "l1": tuple(10 ** (-n / 2) for n in (5, 6, 7, 8, 9))},
}
SCANNED = ("soft-deep-r", "l1-shrinkage")
# LeNet-300-100 on MNIST in percent, as published: networks of the same shape, trained longer and otherwise than here.
PUBLISHED: dict[str, dict[float, float]] = {
    "SNFS (published)": {0.01: 97.64, 0.02: 98.01, 0.05: 98.47},
    "SET (published)": {0.01: 95.8, 0.02: 97.74, 0.05: 98.14},
    "DEEP R (as others print it)": {0.01: 94.0, 0.02: 98.21, 0.05: 98.06},
}


def points(method: str) -> Iterator[Point]:
    for values in itertools.product(*GRIDS[method].values()):
        yield dict(zip(GRIDS[method], values, strict=True))


def settings(method: str, point: Point, level: float | None, base: Point) -> RunConfig:
    """The run of a method at one point of its grid; ``level`` where the method is told its connectivity."""
    own: dict[str, Any] = {**point, "method": method, "connectivity": level}
    aim = own.pop("aim", None)
    if aim is not None:
        temperature = temperature_from_l1(own["l1"], own["lr"])
        own |= {"connectivity": aim, "noise": own["l1"] / 3, "theta_min": theta_min_for(aim, temperature, own["l1"])}
    return make_config({**COMMON, **base}, own)


def name_of(method: str, point: Point, level: float | None, seed: int) -> str:
    parts = [method, *([] if level is None else [f"{level:g}"]), *(f"{k}={v:g}" for k, v in point.items()), f"s{seed}"]
    return "-".join(parts)


def levels_of(method: str, levels: Sequence[float]) -> Sequence[float | None]:
    """The connectivities that a method is told; None for those that are not told."""
    return (None,) if method in SCANNED or method == "dense" else levels


def choose(methods: Sequence[str], out: Path, jobs: int, base: Point) -> list[dict[str, Any]]:
    """What each point of each grid reaches on held-out examples."""
    cells = [(m, point, level) for m in methods for level in levels_of(m, CHOICE_LEVELS) for point in points(m)]
    plan = {name_of(*cell, 0): cell for cell in cells}
    configs = {name: settings(*what, {**base, "seed": 0}) for name, what in plan.items()}
    done = run_configs(configs, out / "choice", jobs)
    for name, why in done.lost.items():
        print(f"not to be chosen: {name}: {why}")
    found = []
    for name, summary in done.summaries.items():
        method, point, level = plan[name]
        more = {"accuracy": summary["test_accuracy"], **{key: summary[key] for key in ("connectivity", "seconds")}}
        found.append({"method": method, "point": point, "level": level, **more})
    return found


def best(choices: Sequence[dict[str, Any]], method: str, level: float) -> Point | None:
    """The point of a method's grid for a connectivity; None where none of its runs was within it."""
    tried = [choice for choice in choices if choice["method"] == method]
    if method in SCANNED:
        tried = [choice for choice in tried if choice["connectivity"] <= level]
    elif method != "dense":
        told = [choice["level"] for choice in tried]
        near = max((t for t in told if t <= level), default=min(told, default=0.0))
        tried = [choice for choice in tried if choice["level"] == near]
    chosen: Point | None = max(tried, key=lambda choice: choice["accuracy"], default={"point": None})["point"]
    return chosen


def run(
    methods: Sequence[str], levels: Sequence[float], seeds: Sequence[int], choices: Sequence[dict[str, Any]], out: Path,
    jobs: int, base: Point,
) -> list[dict[str, Any]]:  # fmt: skip
    """The test: one line for each method and connectivity."""
    cells = [(method, 1.0) for method in methods if method == "dense"]
    cells += [(method, level) for method in methods if method != "dense" for level in levels]
    configs: dict[str, RunConfig] = {}
    lines: list[tuple[str, float, Point | None, list[str]]] = []
    for method, level in cells:
        point, names = best(choices, method, level), []
        told = level if levels_of(method, levels) == levels else None
        if point is not None:
            names = [name_of(method, point, told, seed) for seed in seeds]
            configs |= {n: settings(method, point, told, {**base, "seed": s}) for n, s in zip(names, seeds, strict=True)}
        lines.append((method, level, point, names))
    done = run_configs(configs, out / "test", jobs)
    done.check_all()
    return [table_line(m, level, point, [done.summaries[name] for name in names]) for m, level, point, names in lines]


def table_line(method: str, level: float, point: Point | None, summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One method at one connectivity over its seeds; without runs if no setting stayed within the connectivity."""
    line: dict[str, Any] = {"method": method, "level": level, "settings": point, "runs": len(summaries)}
    if not summaries:
        return line
    return line | accuracy_line(summaries) | {
        "connectivity": [round(summary["connectivity"], 6) for summary in summaries],
        "most_active": [summary["max_active"] for summary in summaries],
        "epochs": summaries[0]["epochs"],
    }  # fmt: skip


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """A row for each method, a column for each connectivity, published figures below, and how sizes are counted."""
    sparse, ran = [line for line in lines if line["method"] != "dense"], [line for line in lines if line["runs"]]
    levels = sorted({line["level"] for line in sparse})
    cells = {(line["method"], line["level"]): line for line in lines}
    methods = dict.fromkeys(line["method"] for line in sparse)
    rows = [[method, *(_cell(cells[method, level]) for level in levels)] for method in methods]
    for name, published in PUBLISHED.items():
        rows.append([name, *(f"{published[level]:.2f}" if level in published else "" for level in levels)])
    head = f"Accuracy in percent on the {ran[0]['evaluated_on']} set after {ran[0]['epochs']} epochs" if ran else ""
    dense = cells.get(("dense", 1.0), {"runs": 0})
    over = [line for line in ran if max(line["connectivity"]) > line["level"] * 1.001]
    above = [f"{x['method']} at {100 * x['level']:g} %: up to {100 * max(x['connectivity']):.3g} %" for x in over]
    parts = [
        f"{head}, mean ± standard deviation over seeds.\n",
        markdown_table(["method", *(f"{100 * level:g} %" for level in levels)], rows) + "\n",
        *([f"Dense: {plus_minus(dense['mean'], dense['spread'])} %.\n"] if dense["runs"] else []),
        "soft-deep-r and constant-rate are held against the most connections that they ever had, l1-shrinkage and "
        "pruning, which start dense, against those at the end.",
    ]
    kept = all(line["budget_kept"] for line in ran)
    notes = ["Budgets were kept in every step." if kept else "BUDGETS WERE NOT KEPT."]
    notes += [f"Above their column in some seed: {'; '.join(above)}."] if above else []
    return "\n".join([*parts, *notes, ""])


def _cell(line: dict[str, Any]) -> str:
    if not line["runs"]:
        return "not reached"
    cell, most = plus_minus(line["mean"], line["spread"]), max(line["connectivity"])
    # Where a method finds its own size, the size that it found.
    return cell if abs(most / line["level"] - 1) < 0.02 else f"{cell} (at {100 * most:.2g} %)"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("MNIST with all methods at rising connectivity.", "choose", "run", jobs=True)
    parser.add_argument("--methods", nargs="*", choices=tuple(GRIDS), help="only these")
    parser.add_argument("--levels", nargs="*", type=float, default=LEVELS, help="connectivities of the test")
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, default=COMMON["epochs"], help="of every run")
    parser.add_argument("--data", default=COMMON["data"], help="another data set, to try the experiment out")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="examples to choose settings on")
    options = parser.parse_args(arguments)
    methods = [method for method in options.methods or GRIDS if method in METHODS]
    base = {"epochs": options.epochs, "data": options.data}
    choices = read_json(options.out, "choice") or []
    if options.what == "choose":
        found = choose(methods, options.out, options.jobs, {**base, "validation": options.held_out})
        choices = [choice for choice in choices if choice["method"] not in methods] + found
        write_study(options.out, "choice", choices, None)
        return 0
    missing = set(methods) - {choice["method"] for choice in choices}
    if missing:
        kept = options.out / "choice.json"
        raise ConfigError(f"{kept} must hold choices for {', '.join(sorted(missing))}: run choose first")
    lines = run(methods, tuple(options.levels), options.seeds, choices, options.out, options.jobs, base)
    write_study(options.out, "table", lines, markdown(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
