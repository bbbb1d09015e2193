"""The number of threads is no setting of a run: the same command gives the same bits on one thread and on two."""

import pytest
import torch
from reliability_helpers import assert_same
from safetensors.torch import load_file

from wirebound import ops
from wirebound_lab import data
from wirebound_lab.cli import main
from wirebound_lab.run import TrainConfig, train

pytestmark = [
    pytest.mark.usefixtures("threads"),
    pytest.mark.skipif(not ops.native_available(), reason="the native kernels were not built"),
]

# Sizes at which a plain stack has more than one way to compute a layer; the first is that of the README's network.
CASES = {
    "wide": ["--connectivity", "0.1", "--batch-size", "64", "--hidden", "300", "100"],
    "thin": ["--connectivity", "0.02", "--batch-size", "64", "--hidden", "300", "100"],
    "large batches": ["--connectivity", "0.1", "--batch-size", "256", "--hidden", "128"],
    "small batches": ["--connectivity", "0.3", "--batch-size", "10", "--hidden", "40", "--epochs", "1"],
    "bias and momentum": ["--connectivity", "0.2", "--batch-size", "64", "--bias", "--optimizer", "momentum", "--lr", "0.1"],
    "a budget for each layer": ["--connectivity", "0.1", "--batch-size", "64", "--scope", "layer"],
}
COMMON = ["--data", "digits", "--epochs", "4", "--lr", "0.5", "--l1", "1e-3", "--seed", "7", "--checkpoint-seconds", "0", "--quiet"]


def _run(out, threads, *settings):
    assert main(["train", *COMMON, *settings, "--threads", str(threads), "--out", str(out)]) == 0


@pytest.mark.parametrize("engine", ["module", "fused"])
@pytest.mark.parametrize("case", CASES)
def test_one_thread_and_two(tmp_path, case, engine):
    for threads in (1, 2):
        _run(tmp_path / str(threads), threads, *CASES[case], "--engine", engine)
    assert_same(tmp_path / "1", tmp_path / "2")


def test_a_run_that_goes_on_with_another_number(tmp_path):
    settings = {"data": "digits", "connectivity": 0.1, "batch_size": 64, "epochs": 3, "lr": 0.5, "engine": "module"}
    train(TrainConfig(**settings, threads=1), tmp_path / "whole")

    def stop(progress):
        if progress.step == 30:
            raise KeyError

    with pytest.raises(KeyError):
        train(TrainConfig(**settings, threads=1, checkpoint_every=7), tmp_path / "run", listener=stop)
    train(TrainConfig(**settings, threads=2), tmp_path / "run", resume=True)
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["10", "64", "128"])
@pytest.mark.parametrize("connectivity", ["0.01", "0.1", "0.5"])
def test_mnist_on_one_thread_and_two(tmp_path, batch, connectivity):
    try:
        data.load("mnist", fetch=False)
    except data.DataUnavailable:
        pytest.skip("MNIST is not here")
    settings = ["--data", "mnist", "--epochs", "1", "--connectivity", connectivity, "--batch-size", batch, "--engine", "module"]
    for threads in (1, 2):
        _run(tmp_path / str(threads), threads, *settings)
    assert_same(tmp_path / "1", tmp_path / "2")
