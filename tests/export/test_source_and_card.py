"""Run folders and model files: opened, described and exported by the command, wrong ones refused."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from export_helpers import KINDS, inputs_for, outputs_of, small_network
from torch import nn

import wirebound as wb
from wirebound.checkpoint import CheckpointError
from wirebound.checkpoint.container import Container, write_container
from wirebound.export import ExportError
from wirebound_lab.cli import main
from wirebound_lab.run.export_source import model_card, open_source


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_a_plain_stack_is_enough(kind, tmp_path):
    model = small_network(kind)
    wb.save(tmp_path / "m.safetensors", model=model)
    found = open_source(tmp_path / "m.safetensors")
    x = inputs_for(model)
    mine, theirs = model.state_dict(), found.model.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    np.testing.assert_allclose(outputs_of(found.model, x), outputs_of(model, x), rtol=1e-5, atol=1e-6)
    assert [w.layer_active for w in wb.wirings(found.model)] == [w.layer_active for w in wb.wirings(model)]
    assert found.config is None


def test_run_folder_and_its_file_are_the_same_model(mnist_run, tmp_path):
    shutil.copy(mnist_run / "model.safetensors", tmp_path / "alone.safetensors")
    run, alone = open_source(mnist_run), open_source(tmp_path / "alone.safetensors")
    x = np.random.default_rng(0).random((5, 784), dtype=np.float32)
    np.testing.assert_array_equal(outputs_of(run.model, x), outputs_of(alone.model, x))
    assert alone.config.connectivity == run.config.connectivity == 0.01
    assert alone.result["test_accuracy"] == run.result["test_accuracy"] > 0.8
    assert dict(model_card(tmp_path / "alone.safetensors"))["test accuracy"] == dict(model_card(mnist_run))["test accuracy"]


def test_card(mnist_run):
    card = dict(model_card(mnist_run))
    assert card["network"] == "784-300-100-10 (ReLU)"
    assert card["budget"].startswith("2,662 connections of 266,200 possible (1 %)")
    layers = [int(re.search(r": ([\d,]+) of", card[f"layer {n}"]).group(1).replace(",", "")) for n in (0, 2, 4)]
    assert sum(layers) == 2662
    assert (card["method"], card["data"], card["epochs"]) == ("deep-r", "mnist", "1, seed 0")
    assert "lr 0.12" in card["settings"]
    assert card["active"].startswith("2,662 connections whenever counted")
    summary = json.loads((mnist_run / "summary.json").read_text())
    assert card["test accuracy"].startswith(f"{100 * summary['test_accuracy']:.2f} %")
    assert f"{(mnist_run / 'model.safetensors').stat().st_size:,} on disk" in card["bytes"]


def test_card_of_another_model_says_what_it_can(tmp_path):
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(10, 20)

    model = wb.sparsify(Other(), budget=30)
    wb.save(tmp_path / "m.safetensors", model=model)
    card = dict(model_card(tmp_path / "m.safetensors"))
    assert card["layer inner"] == "10 → 20: 30 of 200 (15 %)"
    with pytest.raises(CheckpointError, match="no plain stack"):
        open_source(tmp_path / "m.safetensors")


def test_dense_runs_have_a_card(tmp_path):
    wb.save(tmp_path / "m.safetensors", model=small_network("dense"))
    card = dict(model_card(tmp_path / "m.safetensors"))
    assert card["budget"].startswith("none")
    assert card["training"] == "not recorded in this file"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("stack",), 3, "must be a list of modules"),
        (("stack", 0, "type"), "os.system", "type of module '0'"),
        (("stack", 0, "name"), "a.b", "without dots"),
        (("stack", 1, "name"), "0", "of its own"),
        (("stack", 0, "wiring"), 7, "must be in [0, 1)"),
        (("stack", 0, "part"), -1, "must be in [0, 3)"),
        (("stack", 2, "part"), 0, "for itself"),
        (("wirings", 0, "layers", 0), ["0", 30, 10**9], "must fit its layers"),
        (("wirings", 0, "layers", 0), ["0", 1, 1], "must fit its layers"),
        (("wirings", 0, "layers"), [], "must have layers"),
        (("wirings",), 1, "must be a list"),
    ],
)
def test_a_file_cannot_make_us_build_what_it_does_not_hold(place, value, message, tmp_path):
    wb.save(tmp_path / "m.safetensors", model=small_network("no-bias"))
    with Container(tmp_path / "m.safetensors") as file:
        document, tensors = file.document, {name: file.tensor(name) for name in file.entries}
    target = document["model"]
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    write_container(tmp_path / "bad.safetensors", tensors, document)
    with pytest.raises(CheckpointError, match=re.escape(message)):
        open_source(tmp_path / "bad.safetensors")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "none", "does not exist"),
        (lambda p: p, "is not a finished run"),
        (lambda p: _write(p / "x.txt", b"hello, this is no model"), "cannot be read"),
        (lambda p: _write(p / "config.json", b"{}").parent, "is not a finished run"),
    ],
    ids=["missing", "folder", "text", "no model"],
)
def test_wrong_places(make, message, tmp_path):
    with pytest.raises((ExportError, CheckpointError), match=message):
        model_card(make(tmp_path))


def _write(path, content):
    path.write_bytes(content)
    return path


def test_the_command(mnist_run, tmp_path, capsys):
    header = str(tmp_path / "n.h")
    assert main(["export", str(mnist_run), "--to", "c", "--weights", "int8", "--bytes", "--out", header]) == 0
    told = capsys.readouterr().out
    assert re.search(r"flash: [\d,]+ bytes for [\d,]+ connections; ram: 1,600 bytes", told)
    assert re.search(r"with int8 weights: \d\d\.\d\d % \([+-]\d\.\d\d points\)", told)
    assert main(["export", str(mnist_run), "--to", "onnx", "--out", header]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["info", str(mnist_run)]) == 0
    assert "2,662 connections of 266,200 possible" in capsys.readouterr().out
    assert main(["info", header]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["scipy", "onnx", "nir", "pynn"])
def test_every_format_from_the_command(form, mnist_run, tmp_path, capsys):
    assert main(["export", str(mnist_run / "model.safetensors"), "--to", form, "--out", str(tmp_path / "x")]) == 0
    assert capsys.readouterr().out.strip() == f"{form}: {tmp_path / 'x'}"
    assert (tmp_path / "x").exists()


def test_nothing_is_drawn_from_torchs_generator(mnist_run):
    before = torch.get_rng_state()
    open_source(mnist_run)
    open_source(mnist_run / "model.safetensors")
    assert torch.equal(before, torch.get_rng_state())
