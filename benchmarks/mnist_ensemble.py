"""DEEP R as a sampler: does averaging sparse networks met along a run predict better than one network?

    python benchmarks/mnist_ensemble.py choose --out results/mnist/ensemble    on held-out training data
    python benchmarks/mnist_ensemble.py sharpen --out results/mnist/ensemble   on held-out training data
    python benchmarks/mnist_ensemble.py run --out results/mnist/ensemble       the test set, once a seed

784-300-100-10 at 1 %. The single network is the recommended preset with its annealed schedule. The ensemble continues
from there at constant learning rate and temperature and keeps one sample an epoch. A second single network is annealed over
as many epochs as the whole ensemble took. ``choose`` compares learning rates and temperatures on 10,000 held-out
training examples; what it finds best is written into ``SAMPLING`` by hand. ``sharpen`` finds one number for each row on
the same examples, the power to which its probabilities are best raised, because averages are too unsure of themselves;
``run`` reads it and reports each row as it is and sharpened.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wirebound.engine.modules import data_order
from wirebound.nn.sparse_layer import wirings
from wirebound.posterior import SampleCollector, Samples, fit_power, quality, sharpen
from wirebound_lab import data as datasets
from wirebound_lab.data import Dataset
from wirebound_lab.paper.study import read_json, study_parser, write_study
from wirebound_lab.run import RunConfig, train
from wirebound_lab.run.config import PRESETS, make_config
from wirebound_lab.run.models import build_method, build_optimizer, choose_engine
from wirebound_lab.tables import deviation, markdown_table, plus_minus

DATA = "mnist"
HELD_OUT = 10_000
COUNTS = (5, 10, 20, 40)
BURN_IN = 3  # epochs at the new learning rate before the first sample
# 1/N is the temperature at which the mean loss over N examples gives the posterior itself (T = 1 for their sum).
CHOICES = tuple((lr, t) for lr in (0.03, 0.1, 0.35, 1.4) for t in (0.0, 1e-8, 1e-6, 1 / 50_000))
CHOICE_SAMPLES = 20
KEYS = ("accuracy", "nll", "ece")
Scores = dict[str, float]
SAMPLING = {"lr": 0.35, "temperature": 1e-8}  # the lowest NLL of results/mnist/ensemble/choice.md


def config_of(seed: int, **more: Any) -> RunConfig:
    return make_config(PRESETS["recommended"], {"data": DATA, "connectivity": 0.01, "seed": seed, **more})


def sample(model: nn.Module, config: RunConfig, data: Dataset, *, lr: float, temperature: float, samples: int) -> Samples:
    """Continue from a trained model at constant rates; one sample an epoch."""
    config = config.replace(lr=lr, temperature=temperature, schedule="constant").check()
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


def held_out() -> tuple[Dataset, Tensor, Tensor]:
    data = datasets.split_validation(datasets.load(DATA), HELD_OUT, seed=0)
    return data, data.inputs("test", flatten=True), data.test_y


def choose(out: Path, seeds: Sequence[int]) -> None:
    """All choices on held-out data, best negative log-likelihood first."""
    data, x, y = held_out()
    rows: dict[tuple[float, float], list[Scores]] = {choice: [] for choice in CHOICES}
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
    accuracy, nll, ece = _cells(_mean(alone), {}, "%")
    head = (
        f"Held-out training data, ensembles of {CHOICE_SAMPLES}, mean over seeds {list(seeds)}; "
        f"the single annealed network: accuracy {accuracy}, NLL {nll}, ECE {ece}.\n\n"
    )
    shown = [[f"{row['lr']:g}", f"{row['temperature']:.3g}", *_cells(row, {}, "%")] for row in table]
    columns = ("learning rate", "temperature", "accuracy", "NLL", "ECE")
    write_study(out, "choice", result, head + markdown_table(columns, shown) + "\n")


def predictions(seed: int, data: Dataset, held_out: int, x: Tensor) -> tuple[dict[str, Tensor], Samples]:
    """Probabilities of all rows of the table for one seed, and the samples that made them."""
    config = config_of(seed, validation=held_out)
    total = config.epochs + BURN_IN + max(COUNTS)
    trained = train(config).model
    found = {f"single, {config.epochs} epochs": single(trained, x)}
    found[f"single, {total} epochs"] = single(train(config.replace(epochs=total)).model, x)
    samples = sample(trained, config, data, samples=max(COUNTS), **SAMPLING)
    names = ["the last sample alone", *(f"ensemble of {count}" for count in COUNTS)]
    return found | dict(zip(names, samples.predictions(x, (1, *COUNTS)), strict=True)), samples


def fit(out: Path, seeds: Sequence[int]) -> None:
    """The power of each row on held-out data, mean over seeds."""
    data, x, y = held_out()
    powers: dict[str, list[float]] = {}
    for seed in seeds:
        for name, probabilities in predictions(seed, data, HELD_OUT, x)[0].items():
            powers.setdefault(name, []).append(fit_power(probabilities, y))
        print(seed, {name: round(found[-1], 3) for name, found in powers.items()}, flush=True)
    means = {name: statistics.mean(found) for name, found in powers.items()}
    table = markdown_table(("networks", "power"), [[name, f"{power:.3f}"] for name, power in means.items()])
    text = f"Held-out training data, mean over seeds {list(seeds)}.\n\n{table}\n"
    write_study(out, "sharpness", {"seeds": list(seeds), "powers": means}, text)


def run(out: Path, seeds: Sequence[int]) -> None:
    """The test set, once for each seed and row."""
    powers = (read_json(out, "sharpness") or {"powers": {}})["powers"]
    data = datasets.load(DATA)
    x, y = data.inputs("test", flatten=True), data.test_y
    rows: dict[str, list[Scores]] = {}
    seconds: list[float] = []
    for seed in seeds:
        began = time.perf_counter()
        found, samples = predictions(seed, data, 0, x)
        found |= {f"{name}, sharpened": sharpen(found[name], power) for name, power in powers.items()}
        for name, probabilities in found.items():
            rows.setdefault(name, []).append(quality(probabilities, y).as_dict())
        seconds.append(time.perf_counter() - began)
        print(seed, {name: each[-1] for name, each in rows.items()}, flush=True)
    table = [{"name": name, **_mean(each), "each": each} for name, each in rows.items()]
    result = {
        "seeds": list(seeds), "sampling": SAMPLING, "burn_in_epochs": BURN_IN,
        "connections": sum(wiring.budget for wiring in wirings(next(iter(samples.models())))),
        "bytes_a_sample": samples.nbytes // len(samples), "seconds_each": round(statistics.mean(seconds), 1),
        "table": table, "gains": _gains(table),
    }  # fmt: skip
    write_study(out, "ensemble", result, _text(result))


def _mean(found: Sequence[Scores]) -> dict[str, Any]:
    mean = {key: statistics.mean(row[key] for row in found) for key in found[0]}
    return {**mean, "spread": {key: deviation(row[key] for row in found) or 0.0 for key in found[0]}}


def _gains(table: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each ensemble against each single network, as they are and both sharpened: seed by seed, with standard errors."""
    found = []
    for sharp in (False, True):
        rows = [row for row in table if row["name"].endswith("sharpened") == sharp]
        alone = [row for row in rows if row["name"].startswith("single")]
        for row, base in ((row, base) for row in rows if row["name"].startswith("ensemble") for base in alone):
            gain: dict[str, Any] = {"name": row["name"], "against": base["name"]}
            for key in KEYS:
                gaps = [b[key] - a[key] for a, b in zip(base["each"], row["each"], strict=True)]
                gain[key] = {"mean": statistics.mean(gaps), "error": (deviation(gaps) or 0.0) / len(gaps) ** 0.5}
            found.append(gain)
    return found


def _cells(means: Mapping[str, Any], spreads: Mapping[str, float], unit: str, sign: str = "") -> list[str]:
    parts = (("accuracy", 2, unit), ("nll", 4, ""), ("ece", 2, unit))
    return [plus_minus(means[key], spreads.get(key), digits, unit, sign) for key, digits, unit in parts]


def _text(result: dict[str, Any]) -> str:
    head = (
        f"MNIST test set, 784-300-100-10, {result['connections']:,} connections in each network, mean ± standard "
        f"deviation over seeds {result['seeds']}. Sampling at learning rate {result['sampling']['lr']:g} and "
        f"temperature {result['sampling']['temperature']:g}, one sample an epoch after {result['burn_in_epochs']}; "
        f"{result['bytes_a_sample']:,} B a sample.\n\n"
    )
    rows = [[row["name"], *_cells(row, row["spread"], "%")] for row in result["table"]]
    gains = []
    for gain in result["gains"]:
        means, errors = ({key: gain[key][what] for key in KEYS} for what in ("mean", "error"))
        gains.append([gain["name"], gain["against"], *_cells(means, errors, "points", "+")])
    columns = ("networks", "accuracy", "negative log-likelihood", "calibration error (15 bins)")
    between = "\n\nSeed by seed, mean ± standard error of the mean (less NLL and ECE is better):\n\n"
    against = markdown_table(("networks", "against", "accuracy", "NLL", "ECE"), gains)
    return f"{head}{markdown_table(columns, rows)}{between}{against}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("MNIST at 1 %: one network against an average over samples.", "choose", "sharpen", "run")
    parser.add_argument("--seeds", type=int, nargs="+", help="default: 0 to 4 for run, 0 1 for the others")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    step = {"choose": choose, "sharpen": fit, "run": run}[options.what]
    step(options.out, options.seeds or (range(5) if step is run else (0, 1)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
