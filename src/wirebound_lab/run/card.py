"""The card of a model: which network, how it was trained, what came out, how many bytes it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from wirebound.checkpoint import CheckpointError, load
from wirebound.checkpoint.container import Container
from wirebound.checkpoint.save_load import holds_stack
from wirebound.ledger import ledger
from wirebound.nn.sparse_layer import sparse_layers, wirings
from wirebound_lab.run.config import TrainConfig
from wirebound_lab.run.export_source import Source, open_source
from wirebound_lab.run.run_files import is_count

# Settings that are said elsewhere on the card, or that say where and not how.
_ELSEWHERE = (
    *("data", "data_path", "method", "seed", "epochs", "hidden", "connectivity", "budget", "threads", "validation"),
    *("checkpoint_every", "checkpoint_seconds", "engine", "on_nan"),
)


def model_card(path: Path) -> list[tuple[str, str]]:
    """What is known of the model in a run folder or a file, as (what, text)."""
    if path.is_file() and not holds_stack(path):
        return _file_card(path)
    source = open_source(path)
    return [*_network(source.model), *_training(source), *_result(source), *_bytes(source)]


def _file_card(path: Path) -> list[tuple[str, str]]:
    """What a file says whose model can only be built by who made it: the budgets and where their connections are."""
    found = load(path)
    lines = [("holds", ", ".join(found.sections) or "nothing")]
    with Container(path) as file:
        model = file.document.get("model", {})
        described = model.get("wirings", []) if isinstance(model, dict) else []
        if not isinstance(described, list):
            raise CheckpointError(f"{path} cannot be read: its wirings must be a list")
        for item in described:
            lines += _wiring(item, file)
    steps = [] if found.steps is None else [("steps", f"{found.steps:,}")]
    writer = ", ".join(f"{name} {version}" for name, version in found.writer.items())
    return [*lines, *steps, ("written by", writer), ("bytes", f"{path.stat().st_size:,} on disk"), ("file", str(path))]


def _wiring(item: Any, file: Container) -> list[tuple[str, str]]:
    """One wiring of a file, as the file describes it."""
    match item:
        case {"name": str(name), "budget": int(budget), "layers": [*layers]} if all(map(_is_described, layers)):
            colptr = file.tensor(f"{name}.colptr")
        case _:
            raise CheckpointError(f"{file.path} cannot be read: a wiring must have a name, a budget, and layers of two sizes")
    if colptr.dtype is not torch.int64 or colptr.shape != (sum(n_in for _, _, n_in in layers) + 1,):
        raise CheckpointError(f"{file.path} cannot be read: the columns of wiring {name[:40]!r} must be those of its layers")
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
    share = _percent(active, n_out * n_in)
    return f"layer {name}", f"{n_in} → {n_out}: {active:,} of {n_out * n_in:,} ({share})"


def _network(model: nn.Module) -> list[tuple[str, str]]:
    lines = [("network", _shape(model))]
    found = wirings(model)
    if not found:
        weights = [p for p in model.parameters() if p.dim() > 1]
        possible, used = sum(w.numel() for w in weights), sum(int((w != 0).sum()) for w in weights)
        return [*lines, ("budget", f"none; {used:,} of {possible:,} weights are not 0")]
    budget, possible = sum(w.budget for w in found), sum(w.possible for w in found)
    kind = "one for the network" if len(found) == 1 else f"{len(found)} budgets, one for each wiring"
    lines.append(("budget", f"{budget:,} connections of {possible:,} possible ({_percent(budget, possible)}), {kind}"))
    shapes = [(name, layer.wiring.layers[layer.layer_id], layer.active) for name, layer in sparse_layers(model)]
    return [*lines, *(_layer(name, shape.n_in, shape.n_out, active) for name, shape, active in shapes)]


def _shape(model: nn.Module) -> str:
    names = {type(module).__name__ for module in model.modules() if not list(module.children())}
    linear = [m for m in model.modules() if hasattr(m, "in_features") and hasattr(m, "out_features")]
    sizes = "-".join(str(n) for n in [linear[0].in_features, *(m.out_features for m in linear)]) if linear else ""
    between = sorted(names - {"SparseLinear", "Linear", "Wiring"})
    return f"{sizes} ({', '.join(between)})" if between else sizes


def _training(source: Source) -> list[tuple[str, str]]:
    config, default = source.config, TrainConfig()
    if config is None:
        return [("training", "not recorded in this file")]
    settings = {name: value for name, value in config.as_dict().items() if name not in _ELSEWHERE}
    other = [f"{name} {value}" for name, value in settings.items() if value != getattr(default, name, None)]
    told = ", ".join(other) or "all as in the paper"
    return [
        ("method", config.method),
        ("data", config.data + (f", {config.validation:,} examples held out" if config.validation else "")),
        ("epochs", f"{config.epochs}, seed {config.seed}"),
        ("settings", told),
    ]


def _result(source: Source) -> list[tuple[str, str]]:
    result: dict[str, Any] = source.result
    if "test_accuracy" not in result:
        return []
    accuracy = f"{100 * result['test_accuracy']:.2f} % (last epoch, loss {result['test_loss']:.4f})"
    least, most = result["min_active"], result["max_active"]
    counted = f"{least:,}" if least == most else f"between {least:,} and {most:,}"
    active = f"{counted} connections whenever counted, {result['steps']:,} steps"
    return [(f"{result['evaluated_on']} accuracy", accuracy), ("active", active)]


def _bytes(source: Source) -> list[tuple[str, str]]:
    sizes = f"{ledger(source.model).total:,} in memory, {source.path.stat().st_size:,} on disk"
    return [("bytes", sizes), ("file", str(source.path))]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %"
