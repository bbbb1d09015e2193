"""A GPT with 400 million possible connections and exactly one million, in less than 1 GB, beside what else a million is good for:

    python benchmarks/sparse_gpt.py --out results/gpt [--jobs 2] [--only deep-r-2048 …]

Every run is a run of the program (`wirebound train --task gpt`) in a process of its own, watched from outside, resumed where
it was if this is started again. All contenders see the same text in the same order, as many tokens in all, one thread each.
`--profile` says where the time of a step goes instead, `--cost` what one step of ours and of top-k costs at rising width. What
is done is written to the folder whenever this ends.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from wirebound_lab.bench.loss_curves import draw
from wirebound_lab.bench.step_profile import profile_steps
from wirebound_lab.bench.watched import run_watched
from wirebound_lab.run.config import make_config, tasks
from wirebound_lab.tables import markdown_table

LENGTH = {"context": 128, "batch_size": 8, "steps": 40, "epochs": 10, "windows": 64, "warmup": 0.1, "threads": 1}
OURS = {"method": "deep-r", "births": "gradient", "rewire_every": 4}
LARGE = {"width": 2048, "depth": 8, "heads": 16, "budget": 1_000_000, "accumulate": 8, "lr": 0.01}
MIDDLE = {"width": 256, "depth": 4, "heads": 4, "budget": 40_000, "accumulate": 2}
RUNS: dict[str, dict[str, Any]] = {
    "deep-r-2048": {**LARGE, **OURS},
    "fixed-2048": {**LARGE, "method": "fixed"},
    "dense-152": {"width": 152, "depth": 4, "heads": 4, "accumulate": 2, "method": "dense", "lr": 0.003},
    "deep-r-256": {**MIDDLE, **OURS, "lr": 0.02},
    "uniform-256": {**MIDDLE, "method": "deep-r", "lr": 0.02},
    "fixed-256": {**MIDDLE, "method": "fixed", "lr": 0.02},
    "top-k-256": {**MIDDLE, "method": "top-k", "lr": 0.01},
}
TITLES = {
    "deep-r-2048": "DEEP R, 1 M of 404 M", "fixed-2048": "fixed, 1 M of 404 M", "dense-152": "dense, as many parameters",
    "deep-r-256": "DEEP R, births by gradient", "uniform-256": "DEEP R, uniform births", "fixed-256": "fixed",
    "top-k-256": "top-k, dense moments",
}  # fmt: skip
COST_WIDTHS, COST_METHODS = (256, 512, 1024), ("deep-r", "top-k")
QUICK = {"context": 16, "batch_size": 4, "steps": 2, "epochs": 2, "windows": 4, "depth": 1, "heads": 2, "accumulate": 2}


def settings_of(name: str, quick: bool, epochs: int | None = None) -> dict[str, Any]:
    found = {"task": "gpt", **LENGTH, **RUNS[name]} | ({} if epochs is None else {"epochs": epochs})
    if quick:
        found |= {**QUICK, "width": found["width"] // 16 * 2, **({"budget": 3000} if "budget" in found else {})}
    return found


def command(name: str, folder: Path, quick: bool, epochs: int | None) -> list[str]:
    options = [f"--{key.replace('_', '-')}={value}" for key, value in settings_of(name, quick, epochs).items()]
    return [sys.executable, "-m", "wirebound", "train", "--resume", "--quiet", "--out", str(folder), *options]


def profile(name: str, quick: bool) -> dict[str, float]:
    """Seconds of CPU of one step, by what they are spent on."""
    config = make_config({**settings_of(name, quick), "steps": 100})
    torch.set_num_threads(config.threads or 1)
    task = tasks()["gpt"](config)
    engine = task.engine(config)
    batches = iter(task.batches(1, 0))

    def step() -> None:
        engine._step(next(batches), 1e-4)  # type: ignore[attr-defined]

    return profile_steps(step, getattr(config, "rewire_every", 1))  # all kinds of steps that there are


def cost(runs: Path, at_once: int, quick: bool) -> list[dict[str, Any]]:
    """CPU seconds and peak memory of two steps at rising width, four layers, 1 % of the possible connections."""
    jobs, found = {}, []
    for width in [64] if quick else COST_WIDTHS:
        for method in COST_METHODS:
            own = {"width": width, "depth": 4, "heads": 4, "connectivity": 0.01, "method": method, "accumulate": 8, "lr": 0.001}
            length = {**LENGTH, **(QUICK if quick else {}), "steps": 2, "epochs": 1, "windows": 1}
            name = f"cost-{method}-{width}"
            options = [f"--{key.replace('_', '-')}={value}" for key, value in {"task": "gpt", **length, **own}.items()]
            command = [sys.executable, "-m", "wirebound", "train", "--resume", "--quiet", "--out", str(runs / name), *options]
            jobs[name] = (command, runs / f"{name}.memory.json")
    run_watched(jobs, at_once, {"OMP_NUM_THREADS": "1"})
    for name in jobs:
        summary = json.loads((runs / name / "summary.json").read_text(encoding="utf-8"))
        peak = json.loads((runs / f"{name}.memory.json").read_text(encoding="utf-8"))["peak_bytes"]
        told = {"method": summary["title"], "possible": summary["possible"], "active": summary["max_active"]}
        state = sum(entry["bytes"] for entry in summary["ledger"])
        found.append({**told, "cpu_seconds": summary["cpu_seconds"] / summary["steps"], "state_bytes": state, "peak_bytes": peak})
    return found


def cost_table(found: list[dict[str, Any]]) -> str:
    head = ["method", "possible", "connections", "CPU a step", "model and optimiser", "peak memory of the process"]
    sizes = [[f"{c[key] / 1e6:,.0f} MB" for key in ("state_bytes", "peak_bytes")] for c in found]
    rows = [[c["method"], f"{c['possible']:,}", f"{c['active']:,}", f"{c['cpu_seconds']:.2f} s", *size] for c, size in zip(found, sizes, strict=True)]
    return markdown_table(head, rows, range(1, 6))


def finished(runs: Path, name: str) -> dict[str, Any] | None:
    """What is told of a run that has ended, or of one that is under way."""
    folder = runs / name if (runs / name).exists() else runs / f"{name}.partial"
    if not (folder / "metrics.jsonl").exists():
        return None
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    if not epochs:
        return None
    keys = ("step", "test_loss", "test_accuracy", "cpu_seconds", "dead_neurons", "unconnected_neurons", "silent_neurons", "active")
    told: dict[str, Any] = {"name": name, "curve": [{key: line[key] for key in keys} for line in epochs]}
    windows = [line for line in lines if line["kind"] == "window"]
    told["min_active"], told["max_active"] = (f(f(w["active_min"], w["active_max"]) for w in windows) for f in (min, max))
    told["rewired"] = sum(line["rewired"] for line in epochs)
    memory = runs / f"{name}.memory.json"
    if memory.exists():
        told |= json.loads(memory.read_text(encoding="utf-8"))
    if (folder / "summary.json").exists():
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        wanted = ("parameters", "possible", "budget", "max_active", "min_active", "steps", "tokens", "tokens_per_second", "training_seconds")
        told |= {key: summary[key] for key in (*wanted, "bits_per_byte", "hidden_neurons", "text", "text_sha256", "versions")}
        told["state_bytes"] = sum(entry["bytes"] for entry in summary["ledger"])
    return told


def row(told: Mapping[str, Any]) -> list[str]:
    last = told["curve"][-1]
    state = f"{told['state_bytes'] / 1e6:,.0f} MB" if "state_bytes" in told else ""
    seconds = last["cpu_seconds"] / last["step"]
    tokens = f"{LENGTH['context'] * LENGTH['batch_size'] / seconds:,.0f}"
    peak = f"{told['peak_bytes'] / 1e6:,.0f} MB" if "peak_bytes" in told else ""
    active = f"{told['min_active']:,}" + ("" if told["min_active"] == told["max_active"] else f" to {told['max_active']:,}")
    dead = f"{last['dead_neurons']:,} ({last['unconnected_neurons']:,} / {last['silent_neurons']:,})"
    loss = f"{last['test_loss']:.3f}"
    return [TITLES[told["name"]], active, str(last["step"]), loss, f"{last['test_loss'] / 0.6931472:.3f}", f"{seconds:.2f} s", tokens, state, peak, dead]


def write(out: Path, runs: Path) -> None:
    found = [told for name in RUNS if (told := finished(runs, name)) is not None]
    if not found:
        return
    head = ["network", "connections, at every step", "steps", "nats a byte", "bits a byte", "CPU a step", "tokens per CPU second"]
    head += ["model and optimiser", "peak memory of the process", "dead neurons (unconnected / silent)"]
    table = markdown_table(head, map(row, found), range(1, len(head)))
    groups = {"large": [n for n in RUNS if n.endswith(("2048", "152"))], "small": [n for n in RUNS if n.endswith("256")]}
    for group, names in groups.items():
        curves = {TITLES[told["name"]]: told["curve"] for told in found if told["name"] in names}
        if curves:
            over = {"steps": "step", "CPU seconds": "cpu_seconds"}
            panels = {label: {n: [(p[key], p["test_loss"]) for p in c] for n, c in curves.items()} for label, key in over.items()}
            (out / f"{group}.svg").write_text(draw("Loss on held-out files, nats a byte", panels), encoding="utf-8")
    profiled = out / "profile.json"
    where = ""
    if profiled.exists():
        parts: dict[str, dict[str, float]] = json.loads(profiled.read_text(encoding="utf-8"))
        rows = [[TITLES[n], *(f"{s:.2f} s ({100 * s / sum(p.values()):.0f} %)" for s in p.values()), f"{sum(p.values()):.2f} s"] for n, p in parts.items()]
        where = markdown_table(["CPU seconds of one step", *next(iter(parts.values())), "in all"], rows, range(1, 20)) + "\n"
    if (out / "cost.json").exists():
        where += "\n" + cost_table(json.loads((out / "cost.json").read_text(encoding="utf-8"))) + "\n"
    (out / "runs.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (out / "table.md").write_text(table + "\n" + ("\n" + where if where else ""), encoding="utf-8")
    print(table)
    print(where)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for table, curves and figures")
    parser.add_argument("--runs", type=Path, help="folder of the run folders (default: OUT/runs)")
    parser.add_argument("--only", nargs="*", choices=tuple(RUNS), default=list(RUNS), help="these runs only")
    parser.add_argument("--epochs", type=int, help="length of the runs, in 40 steps (default: 10); another needs another --runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    parser.add_argument("--profile", action="store_true", help="where the time of a step goes, instead of training")
    parser.add_argument("--cost", action="store_true", help="what a step of ours and of top-k costs, instead of training")
    parser.add_argument("--quick", action="store_true", help="tiny networks and a few steps, to try this script")
    options = parser.parse_args(arguments)
    runs = options.runs or options.out / "runs"
    options.out.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    if options.profile:
        file = options.out / "profile.json"
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        known |= {name: profile(name, options.quick) for name in options.only}
        file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    elif options.cost:
        text = json.dumps(cost(runs, options.jobs, options.quick), indent=1)
        (options.out / "cost.json").write_text(text + "\n", encoding="utf-8")
    else:
        jobs = {name: (command(name, runs / name, options.quick, options.epochs), runs / f"{name}.memory.json") for name in options.only}
        failed = run_watched(jobs, options.jobs, {"OMP_NUM_THREADS": "1"})
    write(options.out, runs)
    for name in failed:
        print(f"{name} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
