"""What a run folder or a model's file holds: the model, how it was trained, and what came out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from wirebound.checkpoint import CheckpointError, load
from wirebound.checkpoint.save_load import holds_stack, load_model
from wirebound.checkpoint.stack import most_outputs
from wirebound.export.layers import ExportError
from wirebound.methods import METHODS
from wirebound_lab import data as datasets
from wirebound_lab.data import Dataset, DataUnavailable
from wirebound_lab.run.config import TrainConfig, make_config, read_settings
from wirebound_lab.run.models import build_model
from wirebound_lab.run.run_files import check_summary, read_summary

MODEL = "model.safetensors"
# What is said about how a run ended.
RESULT = ("evaluated_on", "test_accuracy", "test_loss", "steps", "min_active", "max_active")


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
        if self.config.validation:
            data = datasets.split_validation(data, self.config.validation, seed=0)
        return data


def open_source(path: Path) -> Source:
    """A finished run folder, or a file that ``wb.save`` wrote."""
    if path.is_dir():
        return _open_run(path)
    if not path.exists():
        raise ExportError(f"{path} does not exist: give a run folder or a model's file")
    card = load(path).extra
    config, result = None, {}
    if isinstance(card, dict) and isinstance(card.get("config"), dict) and isinstance(card.get("result"), dict):
        config = make_config(card["config"])
        if "test_accuracy" in card["result"]:
            result = check_summary(card["result"], path, *RESULT)
    return Source(path, load_model(path), config, result)


def _open_run(folder: Path) -> Source:
    if not (folder / MODEL).exists() or not (folder / "summary.json").exists():
        hint = "; it is unfinished: resume it with wirebound train --resume" if folder.suffix == ".partial" else ""
        raise ExportError(f"{folder} is not a finished run: it must hold {MODEL} and summary.json{hint}")
    try:
        summary = read_summary(folder, "layers", *RESULT)
        config = make_config(read_settings(folder / "config.json"))
        if holds_stack(folder / MODEL):
            return Source(folder / MODEL, load_model(folder / MODEL), config, summary)
        if not hasattr(config, "activation"):
            raise ExportError(f"{folder} is a run of task {config.task!r}, no perceptron: `wirebound info {folder / MODEL}` shows its file")
        layers = summary["layers"]
        inputs, classes = int(layers[0]["shape"][1]), int(layers[-1]["shape"][0])
        _require_held(config, inputs, classes, folder / MODEL)
        model = build_model(config, inputs, classes)
    except (CheckpointError, ExportError):
        raise  # it says which file and what
    except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:
        raise ExportError(f"{folder} is not a finished run: {error}") from error
    load(folder / MODEL, model=model)
    return Source(folder / MODEL, model, config, summary)


def _require_held(config: TrainConfig, inputs: int, classes: int, file: Path) -> None:
    """Refuse to build a network that the model's file is too small to hold, whatever the files beside it say."""
    sizes = [inputs, *config.hidden, classes]
    least = 8 * sum(sizes[:-1])  # where each column starts
    if METHODS[config.method].plain:
        least = sum(4 * n_in * n_out for n_in, n_out in itertools.pairwise(sizes))
    held = file.stat().st_size
    if least > held or classes > most_outputs(held):
        told = "-".join(map(str, sizes))
        raise ExportError(f"a network of sizes {told[:80]} takes at least {least:,} bytes, {file} holds {held:,}")
