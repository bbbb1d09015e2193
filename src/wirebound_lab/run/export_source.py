"""What a run folder or a model's file holds: the model, how it was trained, what came out, how many bytes it takes."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wirebound.checkpoint import CheckpointError, load
from wirebound.checkpoint.container import Container, require
from wirebound.checkpoint.save_load import holds_stack, load_model
from wirebound.checkpoint.stack import most_outputs
from wirebound.export import ExportError
from wirebound.ledger import ledger
from wirebound.methods import METHODS
from wirebound.nn.sparse_layer import sparse_layers, wirings
from wirebound_lab import data as datasets
from wirebound_lab.data import Dataset, DataUnavailable
from wirebound_lab.run.config import TrainConfig, make_config, read_settings
from wirebound_lab.run.models import build_model
from wirebound_lab.run.record import check_summary, is_count, read_summary

MODEL = "model.safetensors"
# What is said about how a run ended.
RESULT = ("evaluated_on", "test_accuracy", "test_loss", "steps", "min_active", "max_active")
# Settings that are said elsewhere on the card, or that say where and not how.
_ELSEWHERE = (
    *("data", "data_path", "method", "seed", "epochs", "hidden", "connectivity", "budget", "threads", "validation"),
    *("checkpoint_every", "checkpoint_seconds", "engine", "on_nan"),
)
Card = list[tuple[str, str]]  # (what, text)


@dataclass(frozen=True)
class Source:
    """A model that was found on disk."""

    path: Path  # of the model's file
    model: nn.Module
    config: TrainConfig | None  # None: the file does not say how it was trained
    result: dict[str, Any]  # summary.json of a run, or what the file keeps of it

    def test_data(self) -> Dataset | None:
        """The data that the result was measured on, if it is on this machine."""
        if self.config is None:
            return None
        try:
            data = datasets.load(self.config.data, path=self.config.data_path, fetch=False)
        except DataUnavailable:
            return None
        return datasets.split_validation(data, self.config.validation, seed=0) if self.config.validation else data


def open_source(path: Path) -> Source:
    """A finished run folder, or a file that ``wb.save`` wrote."""
    if path.is_dir():
        return _open_run(path)
    if not path.exists():
        raise ExportError(f"{path} does not exist: give a run folder or a model's file")
    card, config, result = load(path).extra, None, {}
    if isinstance(card, dict) and isinstance(card.get("config"), dict) and isinstance(card.get("result"), dict):
        config = make_config(card["config"])
        if "test_accuracy" in card["result"]:
            result = check_summary(card["result"], path, *RESULT)
    return Source(path, load_model(path), config, result)


def _open_run(folder: Path) -> Source:
    file = folder / MODEL
    if not file.exists() or not (folder / "summary.json").exists():
        hint = "; it is unfinished: resume it with wirebound train --resume" if folder.suffix == ".partial" else ""
        raise ExportError(f"{folder} is not a finished run: it must hold {MODEL} and summary.json{hint}")
    try:
        summary = read_summary(folder, "layers", *RESULT)
        config = make_config(read_settings(folder / "config.json"))
        if holds_stack(file):
            return Source(file, load_model(file), config, summary)
        if not hasattr(config, "activation"):
            raise ExportError(f"{folder} is a run of task {config.task!r}, no perceptron: `wirebound info {file}` shows its file")
        inputs, classes = int(summary["layers"][0]["shape"][1]), int(summary["layers"][-1]["shape"][0])
        _require_held(config, inputs, classes, file)
        model = build_model(config, inputs, classes)
    except (CheckpointError, ExportError):
        raise  # it says which file and what
    except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:
        raise ExportError(f"{folder} is not a finished run: {error}") from error
    load(file, model=model)
    return Source(file, model, config, summary)


def _require_held(config: TrainConfig, inputs: int, classes: int, file: Path) -> None:
    """Refuse to build a network that the model's file is too small to hold, whatever the files beside it say."""
    sizes, held = [inputs, *config.hidden, classes], file.stat().st_size
    least = 8 * sum(sizes[:-1])  # where each column starts
    if METHODS[config.method].plain:
        least = sum(4 * n_in * n_out for n_in, n_out in itertools.pairwise(sizes))
    if least > held or classes > most_outputs(held):
        told = "-".join(map(str, sizes))
        raise ExportError(f"a network of sizes {told[:80]} takes at least {least:,} bytes, {file} holds {held:,}")


def model_card(path: Path) -> Card:
    """What is known of the model in a run folder or a file."""
    if path.is_file() and not holds_stack(path):
        return _file_card(path)
    source = open_source(path)
    sizes = f"{ledger(source.model).total:,} in memory, {source.path.stat().st_size:,} on disk"
    return [*_network(source.model), *_training(source), ("bytes", sizes), ("file", str(source.path))]


def _file_card(path: Path) -> Card:
    """What a file says whose model can only be built by who made it: the budgets and where their connections are."""
    found = load(path)
    lines = [("holds", ", ".join(found.sections) or "nothing")]
    with Container(path) as file:
        model = file.document.get("model", {})
        described = model.get("wirings", []) if isinstance(model, dict) else []
        require(isinstance(described, list), f"{path} cannot be read: its wirings must be a list")
        for item in described:
            lines += _wiring(item, file)
    steps = [] if found.steps is None else [("steps", f"{found.steps:,}")]
    writer = ", ".join(f"{name} {version}" for name, version in found.writer.items())
    return [*lines, *steps, ("written by", writer), ("bytes", f"{path.stat().st_size:,} on disk"), ("file", str(path))]


def _wiring(item: Any, file: Container) -> Card:
    """One wiring of a file, as the file describes it."""
    match item:
        case {"name": str(name), "budget": int(budget), "layers": [*layers]} if all(map(_is_described, layers)):
            colptr = file.tensor(f"{name}.colptr")
        case _:
            raise CheckpointError(f"{file.path} cannot be read: a wiring must have a name, a budget, and layers of two sizes")
    fits = colptr.dtype is torch.int64 and colptr.shape == (sum(n_in for _, _, n_in in layers) + 1,)
    require(fits, f"{file.path} cannot be read: the columns of wiring {name[:40]!r} must be those of its layers")
    lines = [("budget", f"{budget:,} connections of {sum(n_out * n_in for _, n_out, n_in in layers):,} possible")]
    first = 0
    for layer, n_out, n_in in layers:
        lines.append(_layer(layer, n_in, n_out, int(colptr[first + n_in] - colptr[first])))
        first += n_in
    return lines


def _is_described(layer: Any) -> bool:
    match layer:
        case [str(), n_out, n_in]:
            return is_count(n_out) and is_count(n_in) and n_out > 0 and n_in > 0
    return False


def _layer(name: str, n_in: int, n_out: int, active: int) -> tuple[str, str]:
    return f"layer {name}", f"{n_in} → {n_out}: {active:,} of {n_out * n_in:,} ({100 * active / (n_out * n_in):.3g} %)"


def _network(model: nn.Module) -> Card:
    names = {type(module).__name__ for module in model.modules() if not list(module.children())}
    linear = [m for m in model.modules() if hasattr(m, "in_features") and hasattr(m, "out_features")]
    sizes = "-".join(str(n) for n in [linear[0].in_features, *(m.out_features for m in linear)]) if linear else ""
    between = sorted(names - {"SparseLinear", "Linear", "Wiring"})
    lines, found = [("network", f"{sizes} ({', '.join(between)})" if between else sizes)], wirings(model)
    if not found:
        weights = [p for p in model.parameters() if p.dim() > 1]
        possible, used = sum(w.numel() for w in weights), sum(int((w != 0).sum()) for w in weights)
        return [*lines, ("budget", f"none; {used:,} of {possible:,} weights are not 0")]
    budget, possible = sum(w.budget for w in found), sum(w.possible for w in found)
    kind = "one for the network" if len(found) == 1 else f"{len(found)} budgets, one for each wiring"
    share = f"{100 * budget / possible:.3g} %"
    lines.append(("budget", f"{budget:,} connections of {possible:,} possible ({share}), {kind}"))
    shapes = [(name, layer.wiring.layers[layer.layer_id], layer.active) for name, layer in sparse_layers(model)]
    return [*lines, *(_layer(name, shape.n_in, shape.n_out, active) for name, shape, active in shapes)]


def _training(source: Source) -> Card:
    config, default, result = source.config, TrainConfig(), source.result
    lines = [("training", "not recorded in this file")]
    if config is not None:
        settings = {name: value for name, value in config.as_dict().items() if name not in _ELSEWHERE}
        other = [f"{name} {value}" for name, value in settings.items() if value != getattr(default, name, None)]
        lines = [
            ("method", config.method),
            ("data", config.data + (f", {config.validation:,} examples held out" if config.validation else "")),
            ("epochs", f"{config.epochs}, seed {config.seed}"),
            ("settings", ", ".join(other) or "all as in the paper"),
        ]
    if "test_accuracy" in result:
        accuracy = f"{100 * result['test_accuracy']:.2f} % (last epoch, loss {result['test_loss']:.4f})"
        least, most = result["min_active"], result["max_active"]
        counted = f"{least:,}" if least == most else f"between {least:,} and {most:,}"
        active = f"{counted} connections whenever counted, {result['steps']:,} steps"
        lines += [(f"{result['evaluated_on']} accuracy", accuracy), ("active", active)]
    return lines
