"""Run folders with made-up but realistic numbers, and a real browser."""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parent))  # pytest's importlib mode puts no folder on the path

from browser_helpers import leave_out

SIZES = (784, 300, 100, 10)
MakeRun = Callable[..., Path]


def write_run(
    folder: Path,
    *,
    method: str = "deep_r",
    connectivity: float = 0.01,
    seed: int = 0,
    epochs: int = 20,
    final: float = 0.965,
    steps_per_epoch: int = 6000,
    window: int = 100,
    paper: bool = False,
    overshoot: int = 0,
    summary: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """A folder as a finished run leaves it; `overshoot` passes the budget in one window."""
    draw = random.Random(f"{method} {connectivity} {seed}")
    possible = [a * b for a, b in pairwise(SIZES)]
    budget = round(connectivity * sum(possible))
    initial = [round(0.66 * budget), round(0.26 * budget)]
    initial.append(budget - sum(initial))
    ended = [initial[0] - budget // 50, initial[1] + budget // 50, initial[2]]
    rewires = method not in ("fixed", "dense")
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = [_wiring(draw, 0, 0, initial, epochs)]
    for epoch in range(1, epochs + 1):
        first = (epoch - 1) * steps_per_epoch
        for start in range(first + 1, first + steps_per_epoch + 1, window):
            rise = 1 - math.exp(-start / 8000)
            born = [
                int(window * size * 1.6e-6 * rise * draw.uniform(0.6, 1.4) + draw.random())
                for size in possible
            ]
            spike = overshoot if start == first + 1 and epoch == 2 else 0
            lines.append(
                {
                    "kind": "window",
                    "step_from": start,
                    "step_to": start + window - 1,
                    "loss": 0.1 + 2 * math.exp(-start / 3000) + draw.gauss(0, 0.03) ** 2 * 30,
                    "active_min": budget,
                    "active_max": budget + spike,
                    "newborns": born if rewires else [0, 0, 0],
                    "deaths": born if rewires else [0, 0, 0],
                }
            )
        shift = budget // 50 * epoch // epochs
        accuracy = final - 0.09 * math.exp(-(epoch - 1) / 3) + draw.gauss(0, 0.001) * (epoch < epochs)
        lines.append(
            {
                "kind": "epoch",
                "epoch": epoch,
                "step": epoch * steps_per_epoch,
                "train_loss": 0.12 + 0.5 * math.exp(-epoch / 2),
                "test_loss": 0.14 + 0.45 * math.exp(-epoch / 2),
                "test_accuracy": accuracy,
                "lr": 0.05,
                "active": budget,
                "rewired": 12345,
                "layer_active": [initial[0] - shift, initial[1] + shift, initial[2]],
                "seconds": 2.1,
            }
        )
        lines.append(_wiring(draw, epoch, epoch * steps_per_epoch, ended, epochs))
        lines.append({"kind": "something new", "value": 1})
    record = {
        "method": method,
        "data": "mnist",
        "seed": seed,
        "budget": budget,
        "possible": sum(possible),
        "connectivity": budget / sum(possible),
        "max_active": budget + overshoot,
        "min_active": budget,
        "steps": epochs * steps_per_epoch,
        "epochs": epochs,
        "seconds": 2.1 * epochs,
        "test_accuracy": accuracy,
        "path": "fused",
        "layers": [
            {
                "name": f"fc{i + 1}",
                "shape": [SIZES[i + 1], SIZES[i]],
                "possible": possible[i],
                "initial": initial[i],
                "final": ended[i],
            }
            for i in range(3)
        ],
        "ledger": [
            {"part": "positions", "bytes": 4 * budget, "note": "row and sign of each connection, int32"},
            {"part": "theta", "bytes": 4 * budget, "note": "float32"},
            {"part": "gradient", "bytes": 4 * budget, "note": "float32"},
            {"part": "column pointers", "bytes": 8 * 1185, "note": "int64, one for each input"},
            {"part": "workspace", "bytes": 52000, "note": "activations of one batch"},
        ],
        "versions": {"wirebound": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
    }
    if paper:
        record["paper"] = {
            "claim": "DEEP R reaches 96.3 % on MNIST at 1.0 % connectivity in 20 epochs",
            "accuracy": 0.963,
            "connectivity": 0.01,
            "source": "Bellec et al., ICLR 2018, section 4",
        }
    settings = {
        "data": "mnist", "method": method, "connectivity": connectivity, "budget": None, "scope": "global",
        "allocation": "paper", "newborns": "share", "hidden": [300, 100], "bias": False, "epochs": epochs,
        "batch_size": 10, "optimizer": "sgd", "lr": 0.05, "l1": 1e-4, "noise": 1e-6, "seed": seed,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps({**settings, **(config or {})}))
    (folder / "summary.json").write_text(json.dumps({**record, **(summary or {})}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _wiring(draw: random.Random, epoch: int, step: int, counts: list[int], epochs: int) -> dict[str, Any]:
    """Connections drift from everywhere to the middle of the picture; a tenth is new in each epoch."""
    pull = 1 - math.exp(-4 * epoch / max(1, epochs))
    weights = []
    for index in range(784):
        row, column = divmod(index, 28)
        distance = ((row - 13.5) / 8.5) ** 2 + ((column - 13.5) / 7) ** 2
        weights.append((1 - pull) + pull * 4 * math.exp(-distance))
    inputs = _spread(draw, 784, counts[0], weights)
    layers = []
    for number, (n_in, n_out) in enumerate(pairwise(SIZES)):
        columns = inputs if number == 0 else _spread(draw, n_in, counts[number])
        rows = _spread(draw, n_out, counts[number])
        layer: dict[str, Any] = {"name": f"fc{number + 1}", "shape": [n_out, n_in]}
        for name, values in (("row", rows), ("column", columns)):
            group = -(-len(values) // 128)
            pooled = [sum(values[start : start + group]) for start in range(0, len(values), group)]
            layer |= {f"{name}s": pooled, f"{name}_group": group}
        layers.append(layer)
    ages = []
    for count in counts:
        young = [round(0.1 * count * 0.9**age) for age in range(epoch)]
        ages.append([*young, count - sum(young)])
    return {
        "kind": "wiring",
        "epoch": epoch,
        "step": step,
        "inputs": inputs,
        "shape": [28, 28],
        "layers": layers,
        "ages": {"from": list(range(epoch + 1)), "layers": ages, "since_start": [layer[-1] for layer in ages]},
    }


def _spread(draw: random.Random, places: int, total: int, weights: list[float] | None = None) -> list[int]:
    counts = [0] * places
    for index in draw.choices(range(places), weights, k=total):
        counts[index] += 1
    return counts


def write_experiment(folder: Path, **changes: Any) -> Path:
    """The experiment.json of a figure with curves and one with a grid; a change to None leaves a key out."""
    xs = [0.003, 0.01, 0.03, 0.1]

    def curve(name: str, method: str, best: float, slope: float, style: str = "line") -> dict[str, Any]:
        points = []
        for place, x in enumerate(xs):
            y = best - slope * (3 - place) ** 2
            points.append({"x": x, "y": y, "low": y - 0.003, "high": y + 0.003})
        return {"name": name, "method": method, "style": style, "points": points}

    paper = [{"x": 0.013, "y": 0.962, "label": "read off Figure 1A"}, {"x": 0.1, "y": 0.981}]
    content: dict[str, Any] = {
        "format": 1,
        "name": "fig1a",
        "title": "MNIST: accuracy against connectivity",
        "paper": "Figure 1A",
        "claim": "DEEP R reaches higher accuracies than the other methods, most of all at low connectivity.",
        "scale": "fitted",
        "scale_note": "10 epochs at batch 10, as in the paper",
        "seeds": 3,
        "command": "wirebound reproduce fig1a --out results/reproduce",
        "settings": {"epochs": 10, "batch": 10, "deep-r": {"lr": 0.05, "l1": 1e-4}, "soft": {"lr": 0.05}},
        "charts": [
            {
                "id": "accuracy",
                "kind": "lines",
                "title": "Test accuracy against connectivity",
                "x": {"label": "connectivity", "scale": "log", "percent": True},
                "y": {"label": "test accuracy", "scale": "linear", "percent": True},
                "series": [
                    curve("DEEP R", "deep-r", 0.982, 0.004),
                    curve("soft-DEEP R", "soft-deep-r", 0.981, 0.006, "band"),
                    curve("ℓ1-shrinkage", "l1-shrinkage", 0.979, 0.012),
                    {"name": "DEEP R in the paper", "method": "deep-r", "style": "points", "points": paper},
                    {"name": "dense", "method": "dense", "style": "rule", "points": [{"x": None, "y": 0.9835}]},
                ],
            },
            {
                "id": "grid",
                "kind": "grid",
                "title": "Pruning: accuracy over its settings",
                "x": {"label": "quality q"},
                "y": {"label": "weight decay"},
                "value": {"label": "accuracy", "percent": True},
                "columns": [0.5, 0.75, 1.0, 1.25, 1.5, 2],
                "rows": [0, 1e-5, 1e-4],
                "cells": [
                    [0.91, 0.93, 0.95, 0.96, 0.94, 0.9],
                    [0.92, 0.94, 0.955, 0.965, 0.95, 0.91],
                    [0.7, 0.8, 0.85, 0.88, None, 0.6],
                ],
            },
        ],
        "tables": [
            {
                "title": "Accuracy by method",
                "columns": ["method", "0.3 %", "1 %", "paper at 1 %", "remark"],
                "rows": [
                    ["DEEP R", "94.6 ± 0.3", "96.6 ± 0.3", "96.3", "the most robust"],
                    ["ℓ1-shrinkage", "87.1 ± 0.3", "93.1 ± 0.3", 92.8, ""],
                ],
                "note": "Means over 3 seeds ± one standard deviation.",
            }
        ],
        "findings": [
            {
                "claim": "DEEP R is best at 1 %",
                "paper": "96.2 % at 1.3 %",
                "ours": "96.18 ± 0.24 %",
                "seeds": 10,
                "holds": True,
                "test": "paired, 90 % interval above 0",
            },
            {
                "claim": "ℓ1-shrinkage fails below 1 %",
                "paper": "62 %",
                "ours": "87.1 %",
                "seeds": 3,
                "holds": False,
                "note": "Higher learning rates and 40 epochs were tried; it stays above 80 %.",
            },
            {"claim": "soft-DEEP R reaches the dense accuracy", "ours": "98.1 %", "seeds": 1, "holds": None},
        ],
        "runs": ["runs/mnist/deep-r-0.01-s0", "runs/mnist/lost"],
        "a key of tomorrow": [1, 2, 3],
    }
    folder.mkdir(parents=True, exist_ok=True)
    content = {key: value for key, value in {**content, **changes}.items() if value is not None}
    path = folder / "experiment.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def experiment_writer() -> Callable[..., Path]:
    return write_experiment


@pytest.fixture
def make_experiment(tmp_path: Path) -> Callable[..., Path]:
    def make(folder: str = "fig1a", **changes: Any) -> Path:
        return write_experiment(tmp_path / "results" / folder, **{"name": folder, **changes})

    return make


@pytest.fixture(scope="session")
def run_writer() -> MakeRun:
    """write_run for fixtures that outlive one test."""
    return write_run


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(name: str = "run", **settings: Any) -> Path:
        return write_run(tmp_path / "runs" / name, **settings)

    return make


@pytest.fixture
def small_run(make_run: MakeRun) -> Path:
    return make_run("small", epochs=3, steps_per_epoch=400, paper=True)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium through its driver; a browser test that lacks them or selenium is left out and says so."""
    try:
        from selenium import webdriver
    except ImportError:
        leave_out("browser tests need selenium (pip install selenium)")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        leave_out("browser tests need chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
        "disable-background-networking",
        "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars",
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield chrome
    chrome.quit()
