"""Runs that share their first epochs: each ends as it would have alone, and the shared epochs are trained once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wirebound.checkpoint import CheckpointError
from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.task_runs import CIFAR, SPEECH
from wirebound_lab.run import RunConfig, branch, train
from wirebound_lab.run.branch import Trunk, branch_off
from wirebound_lab.run.config import make_config
from wirebound_lab.run.record import RunFolder

_CLOCK = ("seconds", "training_seconds", "cpu_seconds")


def _config(connectivity: float, **own: Any) -> RunConfig:
    settings = {"data": "digits", "hidden": [20], "epochs": 4, "batch_size": 50, "method": "pruning", "lr": 0.2}
    return make_config(settings, {"connectivity": connectivity}, own)


def _records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


@pytest.fixture
def trunk() -> Trunk:
    return Trunk("shared", _config(0.1), epochs=1)


def test_a_branch_ends_as_it_would_alone(trunk: Trunk, tmp_path: Path) -> None:
    for connectivity in (0.1, 0.3):
        config, out, alone = _config(connectivity), tmp_path / f"branch-{connectivity}", tmp_path / f"alone-{connectivity}"
        branch_off(trunk, config, out)
        found, wanted = train(config, out, resume=True), train(config, alone)
        assert {k: v for k, v in found.summary.items() if k not in _CLOCK} == {k: v for k, v in wanted.summary.items() if k not in _CLOCK}
        assert _records(out) == _records(alone)
        assert (out / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()
        assert found.summary["connectivity"] == pytest.approx(connectivity, rel=0.01)


def test_what_is_shared_is_trained_once(trunk: Trunk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branch_off(trunk, _config(0.1), tmp_path / "a")
    grown = tmp_path / "shared.partial" / "metrics.jsonl"
    epochs = [record["epoch"] for record in _records(grown.parent) if record["kind"] == "epoch"]
    assert epochs == [1]
    steps: list[int] = []
    real = branch.train

    def counted(*given: Any, **named: Any) -> Any:
        return real(*given, listener=lambda progress: steps.append(progress.step), **named)

    monkeypatch.setattr(branch, "train", counted)
    branch_off(trunk, _config(0.3), tmp_path / "b")
    assert steps == []


def test_a_run_that_was_begun_goes_on_from_its_own_checkpoint(trunk: Trunk, tmp_path: Path) -> None:
    config, out = _config(0.3), tmp_path / "run"
    train(config, out, until=2)
    before = (tmp_path / "run.partial" / "checkpoint.safetensors").read_bytes()
    branch_off(trunk, config, out)
    assert (tmp_path / "run.partial" / "checkpoint.safetensors").read_bytes() == before
    assert not (tmp_path / "shared.partial").exists()


def test_beside_a_process_that_trains_the_trunk_a_run_begins_by_itself(trunk: Trunk, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "shared"):
        branch_off(trunk, _config(0.3), tmp_path / "run")
    assert not (tmp_path / "run.partial").exists()
    assert train(_config(0.3), tmp_path / "run", resume=True).summary["epochs"] == 4


def test_a_trunk_of_other_settings_is_refused(trunk: Trunk, tmp_path: Path) -> None:
    branch_off(trunk, _config(0.1), tmp_path / "a")
    config = tmp_path / "shared.partial" / "config.json"
    checkpoint = tmp_path / "shared.partial" / "checkpoint.safetensors"
    train(_config(0.1, lr=0.1), tmp_path / "other", until=1)
    checkpoint.write_bytes((tmp_path / "other.partial" / "checkpoint.safetensors").read_bytes())
    assert json.loads(config.read_text(encoding="utf-8"))["lr"] == 0.2
    with pytest.raises(CheckpointError, match="other settings"):
        branch_off(trunk, _config(0.3), tmp_path / "b")
    assert not (tmp_path / "b.partial").exists()


@pytest.mark.parametrize(("runs", "epochs"), [(CIFAR, 19), (SPEECH, 13)])
def test_runs_of_pruning_share_the_epochs_before_the_first_cut(runs: Any, epochs: int) -> None:
    jobs = [runs.job(Scale.FITTED, "pruning", at, seed=1) for at in runs.points["pruning"]]
    assert all(job.trunk == jobs[0].trunk for job in jobs)
    assert jobs[0].trunk == Trunk("pruning-before-cuts-s1", jobs[0].config, epochs)
    assert epochs < jobs[0].config.epochs / 3
    assert runs.job(Scale.FITTED, "deep-r", 0.05, seed=1).trunk is None
    assert runs.job(Scale.QUICK, "pruning", 0.05, seed=1).trunk is None
