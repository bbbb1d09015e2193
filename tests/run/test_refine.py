"""Allocations by value in a run's settings, and their refinement by what a run converged to."""

import itertools
import json
import subprocess
import sys

import pytest

from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.config import ConfigError, make_config, read_settings
from wirebound_lab.run.refine import converged, refine, refined_counts

SETTINGS = {
    "data": "digits", "connectivity": 0.05, "epochs": 4, "lr": 0.5, "l1": 1e-3, "init": "sparse-fan-in",
    "hidden": [40, 20], "newborns": "uniform", "allocation": "equal",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refine") / "run"
    train(TrainConfig(**SETTINGS), folder)
    return folder


def _initial(folder):
    return [layer["initial"] for layer in json.loads((folder / "summary.json").read_text())["layers"]]


def test_an_allocation_by_value(tmp_path):
    config = TrainConfig(**{**SETTINGS, "connectivity": None, "budget": 178, "allocation": "100,50,28", "epochs": 1})
    train(config, tmp_path / "counts")
    assert _initial(tmp_path / "counts") == [100, 50, 28]
    config = make_config({**SETTINGS, "allocation": "0.02, 0.05, 0.5", "epochs": 1})
    train(config, tmp_path / "shares")
    counts = _initial(tmp_path / "shares")
    assert sum(counts) == round(0.05 * (64 * 40 + 40 * 20 + 20 * 10))
    assert counts[0] / counts[1] == pytest.approx(0.02 * 2560 / (0.05 * 800), rel=0.1)


def test_wrong_allocations_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"allocation \(='evenly'\) must be one of uniform"):
        make_config({**SETTINGS, "allocation": "evenly"})
    for wrong, message in (("100,78", "2 values for 3 layers"), ("100,50,29", "adds up to 179"), ("100,50,281", "28")):
        config = make_config({**SETTINGS, "connectivity": None, "budget": 178, "allocation": wrong})
        with pytest.raises(ValueError, match=message):
            train(config, tmp_path / "x")


def test_converged_counts_are_the_mean_of_the_last_epochs(finished):
    epochs = [
        record["layer_active"]
        for record in map(json.loads, (finished / "metrics.jsonl").read_text().splitlines())
        if record["kind"] == "epoch"
    ]
    assert converged(finished, 0.25) == epochs[-1]
    assert converged(finished, 0.5) == pytest.approx([(a + b) / 2 for a, b in zip(epochs[-2], epochs[-1], strict=True)])
    assert sum(converged(finished, 1.0)) == pytest.approx(178)
    with pytest.raises(ValueError, match=r"last \(=0\)"):
        converged(finished, 0)


def test_refined_counts_add_up_and_fit():
    assert refined_counts([[100.5, 60.2, 17.3], [101.5, 61.2, 15.3]], [2560, 800, 200], 178) == [101, 61, 16]
    assert refined_counts([[10.0, 90.0]], [1000, 50], 100) == [50, 50]  # what a full layer cannot take goes elsewhere


def test_rounds(finished, tmp_path):
    heard = []
    found = refine(finished, tmp_path, rounds=2, seeds=(0, 1), listener=lambda n, one: heard.append(n))
    assert heard == [0, 1, 2]
    assert found[0].initial == _initial(finished)
    assert found[0].initial != found[1].initial
    for before, after in itertools.pairwise(found):
        # The next round starts where this one ended, up to rounding, and with the same budget.
        assert after.initial == pytest.approx(before.final, abs=1)
        assert sum(after.initial) == sum(before.initial) == 178
    assert all(len(one.accuracy) == 2 and one.mean > 0.5 for one in found)
    for number, one in enumerate(found):
        for seed, accuracy in enumerate(one.accuracy):
            folder = finished if number == seed == 0 else tmp_path / f"round-{number}-s{seed}"
            summary = json.loads((folder / "summary.json").read_text())
            assert summary["test_accuracy"] == accuracy
            assert summary["min_active"] == summary["max_active"] == 178
    refined = make_config(read_settings(tmp_path / "refined.json"))
    assert refined.allocation == ",".join(map(str, found[2].initial))
    record = json.loads((tmp_path / "rounds.json").read_text())
    assert [one["mean"] for one in record["rounds"]] == [one.mean for one in found]


def test_runs_that_cannot_be_refined(finished, tmp_path):
    train(TrainConfig(**{**SETTINGS, "scope": "layer", "epochs": 1}), tmp_path / "layer")
    with pytest.raises(ValueError, match="must be 'global'"):
        refine(tmp_path / "layer", tmp_path / "out", rounds=1, seeds=(0,))
    train(TrainConfig(**{**SETTINGS, "method": "fixed", "epochs": 1}), tmp_path / "fixed")
    with pytest.raises(ValueError, match=r"method \(='fixed'\)"):
        refine(tmp_path / "fixed", tmp_path / "out", rounds=1, seeds=(0,))
    with pytest.raises(ValueError, match="finished run"):
        refine(tmp_path / "nowhere", tmp_path / "out", rounds=1, seeds=(0,))
    with pytest.raises(ValueError, match=r"rounds \(=0\)"):
        refine(finished, tmp_path / "out", rounds=0, seeds=(0,))
    assert not (tmp_path / "out").exists()


def test_the_command(finished, tmp_path):
    command = [sys.executable, "-m", "wirebound", "refine", str(finished), "--seeds", "0", "--out", str(tmp_path / "r")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "round 1: " in done.stdout
    assert (tmp_path / "r" / "rounds.md").read_text().count("\n| ") == 4
    again = [*command[:3], "refine", str(tmp_path), "--out", str(tmp_path / "q")]
    done = subprocess.run(again, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "must be the folder of a finished run" in done.stderr


def test_soft_deep_r_is_refined_to_as_many_as_it_ended_with(tmp_path):
    settings = {**SETTINGS, "method": "soft-deep-r", "connectivity": 0.1, "epochs": 2, "l1": 1e-5, "noise": 3e-6}
    train(make_config(settings), tmp_path / "soft")
    rounds = refine(tmp_path / "soft", tmp_path / "out", rounds=1, seeds=[0])
    assert rounds[1].initial == refined_counts([rounds[0].final], [64 * 40, 40 * 20, 20 * 10], None)
    assert sum(rounds[1].initial) == round(sum(rounds[0].final))


def test_methods_that_move_nothing_are_refused(tmp_path):
    train(make_config({**SETTINGS, "method": "pruning", "epochs": 1}), tmp_path / "run")
    with pytest.raises(ValueError, match=r"method \(='pruning'\) .* must be one that moves connections"):
        refine(tmp_path / "run", tmp_path / "out", rounds=1, seeds=[0])
