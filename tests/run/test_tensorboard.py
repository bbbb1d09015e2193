"""TensorBoard scalars, read back by TensorBoard's own reader."""

import builtins
import json

import pytest

from wirebound_lab.cli import main
from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.tensorboard import TensorBoard

RUN = ["train", "--data", "digits", "--connectivity", "0.1", "--hidden", "20", "--epochs", "2", "--batch-size", "100", "--quiet"]


def _config(**settings):
    base = {"data": "digits", "connectivity": 0.1, "hidden": [20], "epochs": 2, "batch_size": 100, "lr": 0.3}
    return TrainConfig(**{**base, "init": "sparse-fan-in", "l1": 3e-3, "checkpoint_every": 5, **settings})


def _scalars(folder):
    """{tag: [(step, value)]}, as the program would show them."""
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reading.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def _records(folder, kind):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def _assert_same_as_records(scalars, out):
    windows, epochs = _records(out, "window"), _records(out, "epoch")
    assert scalars["loss/train"] == [(w["step_to"], pytest.approx(w["loss"])) for w in windows]
    assert scalars["connections/active"] == [(w["step_to"], w["active_max"]) for w in windows]
    for layer in range(2):
        for name in ("newborns", "deaths"):
            expected = [(w["step_to"], pytest.approx(w[name][layer])) for w in windows]  # windows of one step
            assert scalars[f"{name}_a_step/layer_{layer + 1}"] == expected
    assert sum(value for _, value in scalars["newborns_a_step/layer_1"]) > 0
    assert scalars["accuracy/test"] == [(e["step"], pytest.approx(e["test_accuracy"])) for e in epochs]
    assert scalars["loss/test"] == [(e["step"], pytest.approx(e["test_loss"])) for e in epochs]
    assert scalars["learning_rate"] == [(e["step"], pytest.approx(e["lr"])) for e in epochs]
    assert scalars["connections/layer_2"] == [(e["step"], e["layer_active"][1]) for e in epochs]


def test_what_a_run_records_is_what_tensorboard_shows(tmp_path):
    pytest.importorskip("tensorboard")
    with TensorBoard(tmp_path / "log") as board:
        train(_config(), tmp_path / "run", recorder=board)
    _assert_same_as_records(_scalars(tmp_path / "log"), tmp_path / "run")


def test_a_resumed_run_shows_every_step_once(tmp_path):
    pytest.importorskip("tensorboard")

    class PulledPlug(Exception):
        pass

    def pull(progress):
        if progress.step == 22:
            raise PulledPlug

    with pytest.raises(PulledPlug), TensorBoard(tmp_path / "log") as board:
        train(_config(), tmp_path / "run", listener=pull, recorder=board)
    assert _scalars(tmp_path / "log")["loss/train"][-1][0] == 22
    with TensorBoard(tmp_path / "log") as board:
        train(_config(), tmp_path / "run", resume=True, recorder=board)
    _assert_same_as_records(_scalars(tmp_path / "log"), tmp_path / "run")


def test_the_command(tmp_path):
    pytest.importorskip("tensorboard")
    out = tmp_path / "runs" / "first"
    assert main([*RUN, "--out", str(out), "--tensorboard", str(tmp_path / "log"), "--validation", "100"]) == 0
    scalars = _scalars(tmp_path / "log" / "first")
    assert "accuracy/validation" in scalars
    assert "accuracy/test" not in scalars
    assert len(scalars["accuracy/validation"]) == 2


def test_without_the_package(tmp_path, monkeypatch, capsys):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("torch.utils.tensorboard"):
            raise ModuleNotFoundError("No module named 'tensorboard'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"needs the package tensorboard: pip install 'wirebound\[tensorboard\]'"):
        TensorBoard(tmp_path / "log")
    assert main([*RUN, "--out", str(tmp_path / "run"), "--tensorboard", str(tmp_path / "log")]) == 2
    assert "wirebound[tensorboard]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
