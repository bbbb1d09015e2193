"""CIFAR-10 with the tutorial's network: its pieces against torch's own, how it starts, and whole small runs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import wirebound as wb
from wirebound.ops.reference.images import standardise
from wirebound_lab.cli import main
from wirebound_lab.data import Dataset
from wirebound_lab.report.runs import read_run
from wirebound_lab.run.config import ConfigError, make_config
from wirebound_lab.tasks.cifar import (
    DEVIATIONS,
    REWIRED,
    Cifar,
    CifarNet,
    add_decay,
    evaluation_batches,
    plain_model,
    shares_of,
    sparse_model,
    training_batches,
)

TRAIN = ["train", "--task", "cifar", "--quiet"]
SMALL = ["--batch-size", "16", "--momentum", "0.9", "--init", "scaled", "--threads", "1"]
METHODS = [
    pytest.param(["--method", "dense"], id="dense"),
    pytest.param(["--method", "deep-r", "--connectivity", "0.05"], id="deep-r"),
    pytest.param(["--method", "fixed", "--budget", "30000"], id="fixed"),
    pytest.param(["--method", "soft-deep-r", "--connectivity", "0.05", "--l1", "1e-4"], id="soft-deep-r"),
    pytest.param(["--method", "l1-shrinkage", "--l1", "1e-2"], id="l1-shrinkage"),
    pytest.param(["--method", "pruning", "--connectivity", "0.1"], id="pruning"),
]


def _config(**settings):
    return make_config({"task": "cifar", **settings})


@pytest.mark.usefixtures("implementation")
def test_the_network_is_the_tutorials() -> None:
    torch.manual_seed(1)
    model, x = CifarNet(), torch.randn(3, 3, 24, 24)
    y = F.relu(F.conv2d(x, model.conv1.weight.view(64, 3, 5, 5), model.conv1.bias, padding=2))
    y = F.max_pool2d(F.pad(y, (0, 1, 0, 1), value=-math.inf), 3, 2)  # TensorFlow's "same"
    y = F.local_response_norm(y, 9, 0.001, 0.75, 1.0)
    y = F.local_response_norm(F.relu(model.conv2(y)), 9, 0.001, 0.75, 1.0)
    y = F.max_pool2d(F.pad(y, (0, 1, 0, 1), value=-math.inf), 3, 2).flatten(1)
    assert y.shape[1] == 2304
    expected = model.out(F.relu(model.fc2(F.relu(model.fc1(y)))))
    assert torch.allclose(model(x), expected, atol=1e-5)


def test_the_networks_start_as_the_tutorial_and_the_paper_say() -> None:
    plain, sparse = plain_model(3), sparse_model(0.05, None, 3)
    for name, deviation in DEVIATIONS.items():
        weight = plain.get_submodule(name).weight
        assert weight.std().item() == pytest.approx(deviation, rel=0.05), name
    (wiring,) = wb.wirings(sparse)
    assert wiring.budget == round(0.05 * wiring.possible)
    shares = [active / shape.possible for active, shape in zip(wiring.layer_active, wiring.layers, strict=True)]
    assert shares == pytest.approx([0.2, 0.02, 0.2], rel=0.01)
    for part, name in enumerate(("conv2", "fc1", "fc2")):
        theta = wiring.layer_theta(part).detach()
        assert theta.square().mean().sqrt().item() == pytest.approx(DEVIATIONS[name], rel=0.03), name
    assert sparse.conv2.bias.unique().tolist() == pytest.approx([0.1])
    assert sparse.out.bias.unique().tolist() == [0.0]
    wiring.check()


def test_soft_deep_r_starts_as_strong_as_the_others(stripes: Dataset) -> None:
    task = Cifar(_config(method="soft-deep-r", connectivity=0.05, l1=1e-4))
    for name in ("conv2", "fc1", "fc2"):
        weight = task.model.get_submodule(name).weight.detach()
        assert weight[weight != 0].square().mean().sqrt().item() == pytest.approx(DEVIATIONS[name], rel=0.03), name


def test_a_budget_is_scaled_as_its_connectivity_is(stripes: Dataset) -> None:
    assert shares_of(0.05, None) == pytest.approx([0.2, 0.02, 0.2], rel=0.01)
    assert shares_of(None, 53_043) == shares_of(0.05, None)
    assert shares_of(None, None) == [1.0, 1.0, 1.0]


def test_the_budget_is_shared_out_as_asked(stripes: Dataset) -> None:
    counts = (45_000, 4_500, 3_543)
    task = Cifar(_config(method="deep-r", budget=sum(counts), allocation=",".join(map(str, counts))))
    (wiring,) = wb.wirings(task.model)
    assert tuple(wiring.layer_active) == counts
    soft = Cifar(_config(method="soft-deep-r", connectivity=0.05, allocation="0.45,0.005,0.05", l1=1e-4))
    wanted = sparse_model(0.05, None, 0, allocation=[0.45, 0.005, 0.05])
    assert [layer.weight.count_nonzero() for layer in map(soft.model.get_submodule, REWIRED)] == wb.wirings(wanted)[0].layer_active
    with pytest.raises(ConfigError, match="allocation"):
        Cifar(_config(method="deep-r", connectivity=0.05, allocation="half"))


def test_freed_memory_is_kept_where_the_c_library_can() -> None:
    code = "from wirebound_lab.run.processes import keep_freed_memory as k; import platform; print(k(), platform.libc_ver()[0])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == str(said[1:] == ["glibc"])


@pytest.mark.parametrize("sparse", [False, True])
def test_decay_is_the_gradient_of_the_penalty(sparse: bool) -> None:
    model = sparse_model(0.02, None, 0) if sparse else plain_model(0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    add_decay(model, 0.5)
    if sparse:
        (wiring,) = wb.wirings(model)
        expected = wiring.theta.detach() * 0.5
        expected[: wiring.bounds[1]] = 0  # the convolution has none
        assert torch.equal(wiring.theta.grad, expected)
    else:
        assert torch.equal(model.fc1.weight.grad, 0.5 * model.fc1.weight)
        assert not model.conv2.weight.grad.any()


def test_images_are_standardised_pieces_of_their_own(stripes: Dataset) -> None:
    (batch,) = training_batches(stripes, 160, seed=2, epoch=1)
    assert batch.inputs[0].shape == (160, 3, 24, 24)
    assert batch.inputs[0].flatten(1).mean(1).abs().max().item() < 1e-5
    assert batch.inputs[0].flatten(1).std(1, correction=0).tolist() == pytest.approx([1.0] * 160, rel=1e-4)
    again = next(iter(training_batches(stripes, 160, seed=2, epoch=1)))
    other = next(iter(training_batches(stripes, 160, seed=2, epoch=2)))
    assert torch.equal(batch.inputs[0], again.inputs[0])
    assert not torch.equal(batch.inputs[0], other.inputs[0])
    assert sorted(batch.y.tolist()) == sorted(stripes.train_y.tolist())
    middle = next(iter(evaluation_batches(stripes, 60)))
    assert torch.allclose(middle.inputs[0], standardise(stripes.test_x[:, :, 4:28, 4:28].float() / 255), atol=1e-5)


def test_an_image_of_one_colour_stays_finite() -> None:
    assert standardise(torch.full((1, 3, 24, 24), 0.7)).abs().max().item() < 1e-4


@pytest.mark.parametrize("arguments", METHODS)
def test_a_run_learns_and_leaves_a_run_folder(
    stripes: Dataset, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main([*TRAIN, *arguments, *SMALL, "--epochs", "3", "--lr", "0.02", "--out", str(out)]) == 0
    summary = json.loads((out / "summary.json").read_text())
    if summary["method"] not in ("l1-shrinkage", "pruning"):  # three epochs are few for what is cut down
        assert summary["test_accuracy"] > 0.2  # 0.1 by chance
    if summary["budget"] is not None:
        assert summary["min_active"] == summary["max_active"] == summary["budget"]
    assert summary["connectivity"] <= 1
    assert read_run(out).finished
    capsys.readouterr()
    assert main(["info", str(out)]) == 0
    card = capsys.readouterr().out
    assert f"{100 * summary['test_accuracy']:.2f} %" in card
    assert "cifar: CIFAR-10 with the convolutional network" in card


def test_an_interrupted_run_goes_on_to_the_same_end(
    stripes: Dataset, tmp_path: Path, cut_after: Callable[[int], AbstractContextManager[None]]
) -> None:
    settings = ["--connectivity", "0.05", *SMALL, "--epochs", "3", "--evaluate-every", "2", "--checkpoint-every", "4", "--out"]
    assert main([*TRAIN, *settings, str(tmp_path / "whole")]) == 0
    with cut_after(17):  # of 10 in an epoch: the last checkpoint stands within the second
        main([*TRAIN, *settings, str(tmp_path / "cut")])
    assert (tmp_path / "cut.partial" / "checkpoint.safetensors").exists()
    assert main([*TRAIN, *settings, str(tmp_path / "cut"), "--resume"]) == 0
    a, b = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "cut"))
    for volatile in ("seconds", "training_seconds", "cpu_seconds", "ledger"):
        a.pop(volatile), b.pop(volatile)
    assert a == b
    models = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut")]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"images": 0}, r"images \(=0\) must be a finite number >= 1"),
        ({"average": 1.0}, r"average \(=1.0\) must be in \[0, 1\)"),
        ({"schedule": "steep"}, r"schedule \(='steep'\) must be one of cosine, paper"),
        ({"method": "pruning", "quality": 1.0}, "not both"),
    ],
)
def test_settings_are_checked(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        _config(connectivity=0.1, **changes)


def test_the_papers_schedule_falls_tenfold_after_350_epochs(stripes: Dataset) -> None:
    task = Cifar(_config(connectivity=0.05, schedule="paper", epochs=2558))
    factors = [task.config.lr_factor(epoch / 2558) for epoch in (0, 349, 351, 701)]
    assert factors == pytest.approx([1.0, 1.0, 0.1, 0.01])
    short = Cifar(_config(connectivity=0.05))
    assert [short.config.lr_factor(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0])
