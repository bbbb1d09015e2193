"""Runs on real data: what they write, that they repeat, and how they fail."""

import itertools
import json

import pytest
import torch
from safetensors.torch import load_file

from wirebound.engine.modules import DivergedError, data_order
from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.record import RunFolderError

KEYS = {
    *("method", "data", "seed", "budget", "possible", "connectivity", "max_active", "min_active", "steps", "epochs"),
    *("seconds", "test_accuracy", "path", "layers", "ledger"),
}


def _config(**settings):
    base = {"data": "digits", "connectivity": 0.1, "epochs": 4, "lr": 0.5, "l1": 1e-4, "init": "sparse-fan-in"}
    return TrainConfig(**{**base, **settings})


@pytest.mark.parametrize("engine", ["module", "auto"])
@pytest.mark.parametrize("method", ["deep-r", "fixed", "dense"])
def test_a_run_folder(tmp_path, method, engine):
    result = train(_config(method=method, engine=engine), tmp_path / "run")
    folder = result.folder
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "summary.json",
    ]
    assert not (tmp_path / "run.partial").exists()
    summary = json.loads((folder / "summary.json").read_text())
    assert set(summary) >= KEYS
    assert summary["test_accuracy"] > 0.8
    assert summary["steps"] == 4 * 144
    if method != "dense":
        assert summary["budget"] == summary["min_active"] == summary["max_active"] == 5020
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    epochs = [m for m in metrics if m["kind"] == "epoch"]
    assert [m["epoch"] for m in epochs] == [1, 2, 3, 4]
    assert epochs[-1]["test_accuracy"] == summary["test_accuracy"]
    windows = [m for m in metrics if m["kind"] == "window"]
    assert windows[0]["step_from"] == 1
    assert windows[-1]["step_to"] == summary["steps"]
    assert all(b["step_from"] == a["step_to"] + 1 for a, b in itertools.pairwise(windows))
    assert sum(sum(w["newborns"]) for w in windows) == sum(e["rewired"] for e in epochs)
    wiring = [m for m in metrics if m["kind"] == "wiring"]
    if method != "dense":
        assert [m["epoch"] for m in wiring] == [0, 1, 2, 3, 4]
        assert all(len(m["inputs"]) == 64 and sum(m["inputs"]) == c for m, c in zip(
            wiring, [summary["layers"][0]["initial"], *(e["layer_active"][0] for e in epochs)], strict=True))
    state = load_file(folder / "model.safetensors")
    for name, value in result.model.state_dict().items():
        assert torch.equal(state[name], value)


@pytest.mark.parametrize("engine", ["module", "auto"])
def test_same_seed_same_bits(engine):
    runs = [train(_config(epochs=2, engine=engine, noise=1e-3, seed=s)) for s in (7, 7, 8)]
    states = [run.model.state_dict() for run in runs]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(torch.equal(states[0][name], states[2][name]) for name in states[0])
    assert runs[0].summary["test_loss"] == runs[1].summary["test_loss"]


def test_validation_is_part_of_the_training_data():
    result = train(_config(epochs=1, validation=200))
    assert result.summary["evaluated_on"] == "validation"
    assert result.summary["steps"] == -(-(1437 - 200) // 10)


def test_order_of_data_is_a_permutation_that_changes():
    one, two = data_order(1000, 3, 1), data_order(1000, 3, 2)
    assert torch.equal(one.sort().values, torch.arange(1000))
    assert not torch.equal(one, two)
    assert torch.equal(one, data_order(1000, 3, 1))


@pytest.mark.parametrize("engine", ["module", "auto"])
@pytest.mark.parametrize("method", ["deep-r", "fixed"])
def test_an_exploding_loss_stops_the_run_and_leaves_nothing(tmp_path, method, engine):
    with pytest.raises((DivergedError, FloatingPointError), match="finite"):
        train(_config(lr=1e20, method=method, engine=engine), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_touched(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    with pytest.raises(RunFolderError, match="exists already"):
        train(_config(), out)
    with pytest.raises(RunFolderError, match="not a run folder"):
        train(_config(), out, overwrite=True)
    assert (out / "mine.txt").read_text() == "keep"


def test_an_unfinished_run_is_not_overwritten_silently(tmp_path):
    (tmp_path / "run.partial").mkdir()
    with pytest.raises(RunFolderError, match="unfinished run"):
        train(_config(), tmp_path / "run")
    train(_config(epochs=1), tmp_path / "run", overwrite=True)
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_budget_above_the_possible_is_found_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"budget \(=999999\) must be in \[1, 50200\]"):
        train(_config(connectivity=None, budget=999_999), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_fused_engine_must_fit():
    with pytest.raises(ConfigError, match="engine"):
        train(_config(engine="fused", optimizer="rmsprop"))
