"""Class-shuffled training: labels of each epoch, correlations against the dense formula, going on after an interruption."""

import json

import numpy as np
import pytest
import torch

from wirebound.engine.modules import data_order
from wirebound_lab.paper.job import TrainJob
from wirebound_lab.report import read_run
from wirebound_lab.run import models, train
from wirebound_lab.run.config import ConfigError, make_config, tasks
from wirebound_lab.run.processes import Interrupted
from wirebound_lab.tasks.shuffled import PARTS, Snapshot, activity_correlation, permutation, weight_correlation


@pytest.fixture
def config():
    return make_config({"task": "shuffled", "data": "digits", "hidden": [30, 20], "connectivity": 0.3, "batch_size": 1, "epochs": 3, "lr": 0.05, "l1": 1e-5})


def _records(path, kind):
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines if line["kind"] == kind]


def test_labels_are_permuted_anew_for_every_epoch():
    drawn = [tuple(permutation(10, 3, epoch).tolist()) for epoch in range(1, 6)]
    assert drawn[0] == tuple(range(10))
    assert len(set(drawn)) == 5
    assert all(sorted(p) == list(range(10)) for p in drawn)
    assert drawn[1] == tuple(permutation(10, 3, 2).tolist()) != tuple(permutation(10, 4, 2).tolist())


def test_correlations_are_those_of_the_whole_matrices(config):
    first, second = (models.build_model(config.replace(seed=s), 64, 10) for s in (0, 1))
    x = torch.rand(50, 64)
    a, b = Snapshot.of(first, x), Snapshot.of(second, x)
    for n, (mine, theirs) in enumerate(zip((first[0], first[2], first[4]), (second[0], second[2], second[4]), strict=True)):
        dense = np.corrcoef(mine.dense_weight().flatten().numpy(), theirs.dense_weight().flatten().numpy())[0, 1]
        assert weight_correlation(a.weights[n], b.weights[n]) == pytest.approx(dense, abs=1e-6)
        assert weight_correlation(a.weights[n], a.weights[n]) == pytest.approx(1)
    assert [tuple(t.shape) for t in a.activities] == [(50, 30), (50, 20), (50, 10)]
    assert a.activities[2].sum(1).tolist() == pytest.approx([1] * 50)
    hidden = torch.relu(first[0](x)).detach()
    assert torch.equal(a.activities[0], hidden)
    expected = np.corrcoef(a.activities[1].flatten().numpy(), b.activities[1].flatten().numpy())[0, 1]
    assert activity_correlation(a.activities[1], b.activities[1]) == pytest.approx(expected, abs=1e-6)
    assert activity_correlation(torch.zeros(3), torch.rand(3)) == 0


def test_a_run_records_recovery_and_transfer(config, tmp_path):
    summary = train(config, tmp_path / "run").summary
    recovery, transfer = _records(tmp_path / "run", "recovery"), _records(tmp_path / "run", "transfer")
    assert [r["epoch"] for r in transfer] == [1, 2, 3]
    assert len(recovery) == 3 * (PARTS + 1)
    after = {r["epoch"]: r["test_accuracy"] for r in reversed(recovery)}
    end = {r["epoch"]: r["test_accuracy"] for r in recovery}
    assert after[2] < end[1] - 0.2  # a shuffle is felt
    assert end[2] > after[2] + 0.2  # and learned
    assert (summary["budget"], summary["min_active"], summary["max_active"]) == (summary["max_active"],) * 3
    shown = read_run(tmp_path / "run")
    assert (shown.finished, shown.budget_kept, len(shown.records.epochs)) == (True, True, 3)
    assert train(config, tmp_path / "run", resume=True).summary == summary


def test_a_run_that_is_interrupted_within_an_epoch_resumes(config, tmp_path):
    whole = train(config, tmp_path / "whole").summary
    job = TrainJob("x", config.replace(checkpoint_every=400))

    def stop_within_the_second(now):
        if now.step > 2300:  # of 1437 in an epoch
            raise Interrupted("stop", 130)

    with pytest.raises(Interrupted):
        train(job.config, tmp_path / "cut", listener=stop_within_the_second)
    assert job.finished(tmp_path / "cut") is None
    assert (tmp_path / "cut.partial").exists()
    again = job.run(tmp_path / "cut")
    assert {k: v for k, v in again.items() if "seconds" not in k} == {k: v for k, v in whole.items() if "seconds" not in k}
    for kind in ("recovery", "transfer", "window", "epoch", "wiring"):
        assert _records(tmp_path / "cut", kind) == _records(tmp_path / "whole", kind)


def test_other_settings_are_refused(config, tmp_path):
    short = config.replace(epochs=1)
    train(short, tmp_path / "run")
    other = TrainJob("x", short.replace(seed=5))
    for way in (other.run, other.finished):
        with pytest.raises(ConfigError, match=r"seed \(=5\) must be that of the run"):
            way(tmp_path / "run")


@pytest.mark.parametrize("own", [{"mean_gradient": 0.5}, {"mixup": 0.2}, {"augment": "crop", "shift": 0}])
def test_labels_are_permuted_where_batches_are_made_by_the_task(config, own):
    task = tasks()["shuffled"](config.replace(batch_size=1437, **own))
    for epoch in (1, 2):
        (batch,) = task.batches(epoch, 0)
        order = data_order(1437, config.seed, epoch)
        expected = permutation(10, config.seed, epoch)[task.data.train_y[order]]
        if "mixup" in own:  # two classes each, of which the own one is among
            assert (batch.y.gather(1, expected[:, None]) > 0).all()
            assert (batch.y.count_nonzero(1) <= 2).all()
        else:
            assert torch.equal(batch.y, expected)


def test_soft_targets_are_refused(config):
    with pytest.raises(ConfigError, match=r"label_smoothing \(=0.1\) must not be given for task shuffled"):
        config.replace(label_smoothing=0.1).check()
