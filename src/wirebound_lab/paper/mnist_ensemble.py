"""DEEP R as a sampler: does averaging sparse networks met along a run predict better than one network?

    python -m wirebound_lab.paper.mnist_ensemble choose --out results/mnist/ensemble    on held-out training data
    python -m wirebound_lab.paper.mnist_ensemble sharpen --out results/mnist/ensemble   on held-out training data
    python -m wirebound_lab.paper.mnist_ensemble run --out results/mnist/ensemble       the test set, once a seed

784-300-100-10 at 1 %. The single network is the recommended preset with its annealed schedule. The ensemble goes on from
there at constant learning rate and temperature and keeps one sample an epoch. A second single network is annealed over
as many epochs as the whole ensemble took. ``choose`` compares learning rates and temperatures on 10,000 held-out
training examples; what it finds best is written into ``SAMPLING`` by hand. ``sharpen`` finds one number for each row on
the same examples, the power to which its probabilities are best raised, because averages are too unsure of themselves;
``run`` reads it and reports each row as it is and sharpened.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wirebound.engine.modules import data_order
from wirebound.nn.sparse_layer import wirings
from wirebound.posterior import SampleCollector, Samples, fit_power, quality, sharpen
from wirebound_lab import data as datasets
from wirebound_lab.data import Dataset
from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.config import make_config
from wirebound_lab.run.loop import choose_engine
from wirebound_lab.run.models import build_method, build_optimizer
from wirebound_lab.run.presets import preset

DATA = "mnist"
HELD_OUT = 10_000
COUNTS = (5, 10, 20, 40)
BURN_IN = 3  # epochs at the new learning rate before the first sample
# 1/N is the temperature at which the mean loss over N examples gives the posterior itself (T = 1 for their sum).
CHOICES = tuple((lr, t) for lr in (0.03, 0.1, 0.35, 1.4) for t in (0.0, 1e-8, 1e-6, 1 / 50_000))
CHOICE_SAMPLES = 20
SAMPLING = {"lr": 0.35, "temperature": 1e-8}  # the lowest NLL of results/mnist/ensemble/choice.md


def config_of(seed: int, **more: Any) -> TrainConfig:
    return make_config(preset("recommended"), {"data": DATA, "connectivity": 0.01, "seed": seed, **more})


def sample(
    model: nn.Module, config: TrainConfig, data: Dataset, *, lr: float, temperature: float, samples: int
) -> Samples:
    """Go on from a trained model at constant rates; one sample an epoch."""
    config = dataclasses.replace(config, lr=lr, temperature=temperature, schedule="constant").check()
    method = build_method(config, model, build_optimizer(config, model))
    engine = choose_engine(config, model, method, data)
    examples = len(data.train_y)
    per_epoch = -(-examples // config.batch_size)
    method.steps = config.epochs * per_epoch  # random numbers go by the step: these are new ones
    collector = SampleCollector(model, burn_in=BURN_IN)
    for epoch in range(BURN_IN + samples):
        order = data_order(examples, config.seed, config.epochs + 1 + epoch)
        for _ in engine.epoch(order, [lr] * per_epoch, config.batch_size, per_epoch):
            pass
        collector.offer()
    return collector.samples


def single(model: nn.Module, x: Tensor) -> Tensor:
    alone = Samples(model)
    alone.add(model, 0)
    return alone.predict(x)


def choose(out: Path, seeds: Sequence[int]) -> None:
    """All choices on held-out data, best negative log-likelihood first."""
    data = datasets.split_validation(datasets.load(DATA), HELD_OUT, seed=0)
    x, y = data.inputs("test", flatten=True), data.test_y
    rows: dict[tuple[float, float], list[dict[str, float]]] = {choice: [] for choice in CHOICES}
    alone = []
    for seed in seeds:
        config = config_of(seed, validation=HELD_OUT)
        trained = train(config).model
        alone.append(quality(single(trained, x), y).as_dict())
        state = {name: value.clone() for name, value in trained.state_dict().items()}
        for lr, temperature in CHOICES:
            trained.load_state_dict(state)
            found = sample(trained, config, data, lr=lr, temperature=temperature, samples=CHOICE_SAMPLES)
            rows[lr, temperature].append(quality(found.predict(x), y).as_dict())
            print(seed, lr, temperature, rows[lr, temperature][-1], flush=True)
    table = [{"lr": lr, "temperature": t, **_mean(found)} for (lr, t), found in rows.items()]
    table.sort(key=lambda row: row["nll"])
    result = {"seeds": list(seeds), "samples": CHOICE_SAMPLES, "single": _mean(alone), "choices": table}
    _write(out, "choice", result, _choice_text(result))


def predictions(seed: int, data: Dataset, held_out: int, x: Tensor) -> tuple[dict[str, Tensor], Samples]:
    """Probabilities of all rows of the table for one seed, and the samples that made them."""
    config = config_of(seed, validation=held_out)
    total = config.epochs + BURN_IN + max(COUNTS)
    trained = train(config).model
    found = {f"single, {config.epochs} epochs": single(trained, x)}
    found[f"single, {total} epochs"] = single(train(dataclasses.replace(config, epochs=total)).model, x)
    samples = sample(trained, config, data, samples=max(COUNTS), **SAMPLING)
    means = samples.predictions(x, (1, *COUNTS))
    found["the last sample alone"] = means[0]
    found |= {f"ensemble of {count}": mean for count, mean in zip(COUNTS, means[1:], strict=True)}
    return found, samples


def fit(out: Path, seeds: Sequence[int]) -> None:
    """The power of each row on held-out data, mean over seeds."""
    data = datasets.split_validation(datasets.load(DATA), HELD_OUT, seed=0)
    x, y = data.inputs("test", flatten=True), data.test_y
    powers: dict[str, list[float]] = {}
    for seed in seeds:
        for name, probabilities in predictions(seed, data, HELD_OUT, x)[0].items():
            powers.setdefault(name, []).append(fit_power(probabilities, y))
        print(seed, {name: round(found[-1], 3) for name, found in powers.items()}, flush=True)
    means = {name: statistics.mean(found) for name, found in powers.items()}
    result = {"seeds": list(seeds), "powers": means}
    lines = [f"| {name} | {power:.3f} |" for name, power in means.items()]
    head = f"Held-out training data, mean over seeds {list(seeds)}.\n\n| networks | power |\n| --- | --- |\n"
    _write(out, "sharpness", result, head + "\n".join(lines) + "\n")


def run(out: Path, seeds: Sequence[int]) -> None:
    """The test set, once for each seed and row."""
    kept = out / "sharpness.json"
    powers = json.loads(kept.read_text(encoding="utf-8"))["powers"] if kept.exists() else {}
    data = datasets.load(DATA)
    x, y = data.inputs("test", flatten=True), data.test_y
    rows: dict[str, list[dict[str, float]]] = {}
    seconds: list[float] = []
    for seed in seeds:
        began = time.perf_counter()
        found, samples = predictions(seed, data, 0, x)
        for name, probabilities in found.items():
            rows.setdefault(name, []).append(quality(probabilities, y).as_dict())
        for name, power in powers.items():
            sharp = quality(sharpen(found[name], power), y).as_dict()
            rows.setdefault(f"{name}, sharpened", []).append(sharp)
        seconds.append(time.perf_counter() - began)
        print(seed, {name: each[-1] for name, each in rows.items()}, flush=True)
    table = [{"name": name, **_mean(each), "each": each} for name, each in rows.items()]
    model = next(iter(samples.models()))
    result = {
        "seeds": list(seeds),
        "sampling": SAMPLING,
        "burn_in_epochs": BURN_IN,
        "connections": sum(wiring.budget for wiring in wirings(model)),
        "bytes_a_sample": samples.nbytes // len(samples),
        "seconds_each": round(statistics.mean(seconds), 1),
        "table": table,
        "gains": _gains(table),
    }
    _write(out, "ensemble", result, _text(result))


def _gains(table: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each ensemble against each single network, as they are and both sharpened."""
    found = []
    for end in ("", ", sharpened"):
        rows = [row for row in table if row["name"].endswith("sharpened") == bool(end)]
        alone = [row for row in rows if row["name"].startswith("single")]
        found += [_gain(base, row) for row in rows if row["name"].startswith("ensemble") for base in alone]
    return found


def _mean(found: Sequence[dict[str, float]]) -> dict[str, Any]:
    mean = {key: statistics.mean(row[key] for row in found) for key in found[0]}
    spread = {key: statistics.stdev(row[key] for row in found) if len(found) > 1 else 0.0 for key in found[0]}
    return {**mean, "spread": spread}


def _gain(base: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Seed by seed: how much better ``row`` is, with the standard error of the mean."""
    found: dict[str, Any] = {"name": row["name"], "against": base["name"]}
    for key in ("accuracy", "nll", "ece"):
        gaps = [b[key] - a[key] for a, b in zip(base["each"], row["each"], strict=True)]
        error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
        found[key] = {"mean": statistics.mean(gaps), "error": error}
    return found


def _choice_text(result: dict[str, Any]) -> str:
    single_row = result["single"]
    lines = [
        f"Held-out training data, ensembles of {result['samples']}, mean over seeds {result['seeds']}; "
        f"the single annealed network: accuracy {100 * single_row['accuracy']:.2f} %, NLL {single_row['nll']:.4f}, "
        f"ECE {100 * single_row['ece']:.2f} %.",
        "",
        "| learning rate | temperature | accuracy | NLL | ECE |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in result["choices"]:
        lines.append(
            f"| {row['lr']:g} | {row['temperature']:.3g} | {100 * row['accuracy']:.2f} % | {row['nll']:.4f} "
            f"| {100 * row['ece']:.2f} % |"
        )
    return "\n".join(lines) + "\n"


def _text(result: dict[str, Any]) -> str:
    lines = [
        f"MNIST test set, 784-300-100-10, {result['connections']:,} connections in each network, mean ± standard "
        f"deviation over seeds {result['seeds']}. Sampling at learning rate {result['sampling']['lr']:g} and "
        f"temperature {result['sampling']['temperature']:g}, one sample an epoch after {result['burn_in_epochs']}; "
        f"{result['bytes_a_sample']:,} B a sample.",
        "",
        "| networks | accuracy | negative log-likelihood | calibration error (15 bins) |",
        "| --- | --- | --- | --- |",
    ]
    for row in result["table"]:
        spread = row["spread"]
        lines.append(
            f"| {row['name']} | {100 * row['accuracy']:.2f} ± {100 * spread['accuracy']:.2f} % "
            f"| {row['nll']:.4f} ± {spread['nll']:.4f} | {100 * row['ece']:.2f} ± {100 * spread['ece']:.2f} % |"
        )
    lines += [
        "",
        "Seed by seed, mean ± standard error of the mean (less NLL and ECE is better):",
        "",
        "| networks | against | accuracy | NLL | ECE |",
        "| --- | --- | --- | --- | --- |",
    ]
    for gain in result["gains"]:
        acc, nll, ece = gain["accuracy"], gain["nll"], gain["ece"]
        lines.append(
            f"| {gain['name']} | {gain['against']} | {100 * acc['mean']:+.2f} ± {100 * acc['error']:.2f} points "
            f"| {nll['mean']:+.4f} ± {nll['error']:.4f} | {100 * ece['mean']:+.2f} ± {100 * ece['error']:.2f} points |"
        )
    return "\n".join(lines) + "\n"


def _write(out: Path, name: str, result: dict[str, Any], text: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    print(f"table: {out / f'{name}.md'}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="MNIST at 1 %: one network against an average over samples.")
    parser.add_argument("what", choices=("choose", "sharpen", "run"), help="settings on held-out data, or the test")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", help="default: 0 to 4 for run, 0 1 for the others")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.what == "choose":
        choose(options.out, options.seeds or (0, 1))
    elif options.what == "sharpen":
        fit(options.out, options.seeds or (0, 1))
    else:
        run(options.out, options.seeds or range(5))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
