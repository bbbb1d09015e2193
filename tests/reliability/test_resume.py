"""Runs that stop in the middle and go on: every method, optimiser and path, with the data order and the records."""

import itertools
import os
import signal

import pytest
import torch
from reliability_helpers import assert_same, config, content

from wirebound import ops
from wirebound.checkpoint import CheckpointError
from wirebound.checkpoint.container import Container, write_container
from wirebound_lab.run import train
from wirebound_lab.run.config import OPTIMIZERS, ConfigError
from wirebound_lab.run.processes import Interrupted
from wirebound_lab.run.record import RunFolderError

GENTLE = {"adam": 0.01, "adamw": 0.01, "rmsprop": 0.002, "momentum": 0.1, "nesterov": 0.1}


class PulledPlug(Exception):
    """The process is gone, as far as the run can tell: nothing is written on the way out."""


def _stop_at(step, how):
    def listener(progress):
        if progress.accuracy is None and progress.step >= step and not listener.done:
            listener.done = True
            how()

    listener.done = False
    return listener


def _pull():
    raise PulledPlug


def _interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def _resumed(settings, out, stops, how=_pull):
    for step in stops:
        with pytest.raises((PulledPlug, Interrupted)):
            train(settings, out, resume=True, listener=_stop_at(step, how))
    return train(settings, out, resume=True)


@pytest.mark.parametrize(
    ("method", "optimizer", "engine"),
    [
        (method, optimizer, engine)
        for method, optimizer, engine in itertools.product(("deep-r", "fixed", "dense"), OPTIMIZERS, ("module", "fused"))
        if not (engine == "fused" and optimizer == "rmsprop")
    ],
)
def test_every_method_optimiser_and_path(tmp_path, method, optimizer, engine):
    if engine == "fused" and not ops.native_available():
        pytest.skip("the native kernels were not built")
    settings = config(
        method=method,
        optimizer=optimizer,
        engine=engine,
        lr=GENTLE.get(optimizer, 0.3),
        eps=1e-4,
        schedule="cosine",
        checkpoint_every=7,
    )
    whole = train(settings, tmp_path / "whole")
    resumed = _resumed(settings, tmp_path / "resumed", (11, 40))
    assert_same(tmp_path / "whole", tmp_path / "resumed")
    assert resumed.summary["path"] == whole.summary["path"] == engine
    if method == "deep-r":
        assert sum(r["rewired"] for r in content(tmp_path / "whole")[1] if r["kind"] == "epoch") > 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("method", ["soft-deep-r", "constant-rate", "l1-shrinkage", "pruning"])
def test_methods_without_a_budget(tmp_path, method, optimizer):
    settings = config(method=method, optimizer=optimizer, lr=GENTLE.get(optimizer, 0.3), rate=1e-3, checkpoint_every=7)
    whole = train(settings, tmp_path / "whole")
    resumed = _resumed(settings, tmp_path / "resumed", (11, 40))
    assert_same(tmp_path / "whole", tmp_path / "resumed")
    summary = resumed.summary
    assert summary["path"] == "module"
    assert summary["budget"] is None
    assert (summary["min_active"], summary["max_active"]) == (whole.summary["min_active"], whole.summary["max_active"])
    assert summary["min_active"] < summary["max_active"] <= summary["possible"]
    counted = summary["max_active"] if method in ("soft-deep-r", "constant-rate") else sum(x["final"] for x in summary["layers"])
    assert summary["connectivity"] == counted / summary["possible"]


@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("newborns", ["uniform", "share"])
def test_scopes(tmp_path, scope, newborns):
    settings = config(scope=scope, newborns=newborns, rewire_every=2, hidden=[20, 12], checkpoint_every=3)
    train(settings, tmp_path / "whole")
    _resumed(settings, tmp_path / "resumed", (5, 17, 33))
    assert_same(tmp_path / "whole", tmp_path / "resumed")


@pytest.mark.parametrize("engine", ["module", "auto"])
def test_windows_longer_than_a_step_are_recorded_whole(tmp_path, engine):
    """2 epochs of 719 steps make windows of 3: stops fall between their ends."""
    settings = config(batch_size=2, lr=0.02, engine=engine, checkpoint_every=50)
    train(settings, tmp_path / "whole")
    _resumed(settings, tmp_path / "resumed", (100, 701, 1001), _interrupt)
    assert_same(tmp_path / "whole", tmp_path / "resumed")


@pytest.mark.parametrize("engine", ["module", "auto"])
def test_interrupting_at_every_step(tmp_path, engine):
    settings = config(epochs=1, batch_size=100, engine=engine, checkpoint_every=None)
    train(settings, tmp_path / "whole")
    _resumed(settings, tmp_path / "resumed", range(1, 14), _interrupt)
    assert_same(tmp_path / "whole", tmp_path / "resumed")


def test_stretches_do_not_depend_on_where_a_run_was_interrupted(tmp_path):
    """At this density layers change between two ways of summing, by what they look like when a call begins."""
    settings = config(hidden=[80, 30], connectivity=0.1, batch_size=5, noise=0.01, l1=0.01, lr=0.1, checkpoint_every=1)
    train(settings, tmp_path / "whole")
    _resumed(settings, tmp_path / "resumed", (40, 300, 500))
    assert_same(tmp_path / "whole", tmp_path / "resumed")


def test_a_run_without_a_checkpoint_begins_again(tmp_path):
    settings = config(checkpoint_every=None)
    train(settings, tmp_path / "whole")
    (tmp_path / "resumed.partial").mkdir()
    (tmp_path / "resumed.partial" / "metrics.jsonl").write_text('{"kind": "window"')
    (tmp_path / "resumed.partial" / "checkpoint.safetensors.tmp").write_text("half")
    train(settings, tmp_path / "resumed", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "resumed")


def test_a_finished_run_is_returned_as_it_is(tmp_path):
    first = train(config(), tmp_path / "run")
    again = train(config(), tmp_path / "run", resume=True)
    assert again.summary == first.summary
    assert all((a == b).all() for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))


def test_a_run_that_only_lacks_its_name_gets_it(tmp_path):
    train(config(), tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "run.partial")
    (tmp_path / "run.partial" / "checkpoint.safetensors").write_bytes(b"old")
    train(config(), tmp_path / "run", resume=True)
    content(tmp_path / "run")


def test_other_settings_are_refused(tmp_path):
    with pytest.raises(PulledPlug):
        train(config(), tmp_path / "run", listener=_stop_at(9, _pull))
    with pytest.raises(ConfigError, match=r"seed \(=4\) must be that of the run"):
        train(config(seed=4), tmp_path / "run", resume=True)
    with pytest.raises(RunFolderError, match="--resume"):
        train(config(), tmp_path / "run")
    with pytest.raises(RunFolderError, match="pass one of them"):
        train(config(), tmp_path / "run", resume=True, overwrite=True)
    train(config(threads=1, checkpoint_every=9), tmp_path / "run", resume=True)


def test_another_path_is_said(tmp_path):
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    with pytest.raises(PulledPlug):
        train(config(), tmp_path / "run", listener=_stop_at(9, _pull))
    with ops.use("reference"), pytest.raises(RunFolderError, match="--engine module"):
        train(config(), tmp_path / "run", resume=True)
    with ops.use("reference"):
        train(config(engine="module"), tmp_path / "run", resume=True)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "not a checkpoint"])
def test_a_damaged_checkpoint_is_an_error_and_nothing_is_lost(tmp_path, damage):
    with pytest.raises(PulledPlug):
        train(config(), tmp_path / "run", listener=_stop_at(20, _pull))
    path = tmp_path / "run.partial" / "checkpoint.safetensors"
    good, metrics = path.read_bytes(), (tmp_path / "run.partial" / "metrics.jsonl").read_bytes()
    flipped = bytearray(good)
    flipped[-100] ^= 1
    path.write_bytes({"cut": good[:-9], "flipped": bytes(flipped), "empty": b"", "not a checkpoint": b"x" * 99}[damage])
    with pytest.raises(CheckpointError, match=r"checkpoint.safetensors cannot be read"):
        train(config(), tmp_path / "run", resume=True)
    assert (tmp_path / "run.partial" / "metrics.jsonl").read_bytes() == metrics
    path.write_bytes(good)
    train(config(), tmp_path / "run", resume=True)
    train(config(), tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_a_checkpoint_with_counts_for_each_connection(tmp_path):
    """Sealed with a right checksum: only what it means is wrong. Its counts would be moved with the connections."""
    settings = config(optimizer="rmsprop", lr=0.01)
    with pytest.raises(PulledPlug):
        train(settings, tmp_path / "run", listener=_stop_at(20, _pull))
    partial = tmp_path / "run.partial"
    path = partial / "checkpoint.safetensors"
    good = path.read_bytes()
    with Container(path) as file:
        tensors, document = {name: file.tensor(name) for name in file.entries}, file.document
    budget = next(tensor.numel() for name, tensor in tensors.items() if name.endswith(".theta"))
    for name in [name for name in tensors if name.endswith("/step")]:
        tensors[name] = torch.ones(budget, dtype=torch.bfloat16)
    write_container(path, tensors, document)
    before = {file.name: file.read_bytes() for file in partial.iterdir()}
    with pytest.raises(CheckpointError, match=r"/step must be a count, is bfloat16 of shape"):
        train(settings, tmp_path / "run", resume=True)
    assert {file.name: file.read_bytes() for file in partial.iterdir()} == before
    path.write_bytes(good)
    train(settings, tmp_path / "run", resume=True)
    train(settings, tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_records_that_were_cut_off_are_noticed(tmp_path):
    with pytest.raises(PulledPlug):
        train(config(), tmp_path / "run", listener=_stop_at(20, _pull))
    (tmp_path / "run.partial" / "metrics.jsonl").write_text("")
    with pytest.raises(RunFolderError, match="the checkpoint counts"):
        train(config(), tmp_path / "run", resume=True)
