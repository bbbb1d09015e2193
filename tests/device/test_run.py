"""A run on the host build: it learns, its folder is that of any run, and its report is made."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound.export import ExportError, to_c_trainer, write_trainer
from wirebound.export.device_network import DeviceStateError, encode, load_into, read_trained
from wirebound_lab import data as datasets
from wirebound_lab.cli import main
from wirebound_lab.device import build, connect
from wirebound_lab.run.export_source import open_source

SETTINGS = ["--budget", "400", "--lr", "0.1", "--schedule", "linear", "--init", "sparse-fan-in", "--rewire-every", "10"]
DIGITS = ["device", "64-40-10", "--data", "digits", "--epochs", "6", "--checked", *SETTINGS]


@pytest.fixture(scope="module", params=["float", "fixed"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("device") / "run"
    assert main([*DIGITS, "--numbers", request.param, "--train", str(folder), "--quiet"]) == 0
    return folder


def test_it_learns_inside_its_budget(run):
    summary = json.loads((run / "summary.json").read_text())
    assert summary["test_accuracy"] > 0.85
    assert summary["min_active"] == summary["max_active"] == summary["budget"] == 400
    assert summary["path"].startswith("this computer, ")
    assert summary["device"]["accuracy"] == summary["test_accuracy"]
    parts = {entry["part"]: entry["bytes"] for entry in summary["ledger"]}
    assert parts["theta"] + parts["row"] == 400 * (6 if summary["device"]["numbers"] == "float" else 4)


def test_its_folder_is_that_of_any_run(run, tmp_path, capsys):
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "this computer" in page
    source = open_source(run)
    (wiring,) = wb.wirings(source.model)
    wiring.check()
    assert wiring.budget == 400
    assert main(["info", str(run)]) == 0
    assert "400 connections" in capsys.readouterr().out


def test_it_goes_on_from_a_run(run, tmp_path, capsys):
    out = tmp_path / "trainer"
    command = ["export", str(run), "--to", "c-trainer", "--out", str(out), "--numbers", "fixed", "--freeze", "0"]
    assert main(command) == 0
    assert "bytes for 400 connections" in capsys.readouterr().out
    text = (out / "src" / "network.h").read_text()
    assert "#define NETWORK_HAS_STATE 1" in text
    assert "{40u, " in text
    assert ", 1u}," in text


def test_a_trained_network_adapts_to_a_shifted_sensor(run, tmp_path):
    """A run goes on on the chip: the sensor now sees negatives, and what was learned is right again after some examples."""
    data = datasets.load("digits")
    (train, test), (y, test_y) = ((255 - x.flatten(1).numpy() * 15 for x in (data.train_x, data.test_x)), (data.train_y.numpy(), data.test_y.numpy()))
    source = open_source(run)
    network = read_trained(source.model, numbers=json.loads((run / "summary.json").read_text())["device"]["numbers"], pixels=1 / 240)
    trainer = write_trainer(network, tmp_path / "trainer", encode(network, source.model))
    with connect(build(trainer.folder, "host"), network, "host") as chip:
        before = (chip.predict(test) == test_y).mean()
        rates = np.tile([0.02, 0.02 * 1e-4, 0.0], (len(train), 1))
        for _ in range(6):
            chip.steps(train, y, rates)
        after = (chip.predict(test) == test_y).mean()
        assert sum(chip.report().active) == 400
    assert before < 0.5
    assert after > max(0.6, before + 0.2)


def test_a_library_from_nothing(tmp_path, capsys):
    out = tmp_path / "trainer"
    assert main(["device", "784-300-100-10", "--budget", "2662", "--out", str(out)]) == 0
    assert "ram: 19,982 bytes for 2,662 connections of 6 bytes" in capsys.readouterr().out
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    wanted = {"library.properties", "library.json", "zephyr/module.yml", "zephyr/CMakeLists.txt", "zephyr/Kconfig", "Makefile", "LICENSE"}
    wanted |= {"src/wirebound_device.h", "src/wirebound_device.c", "src/network.h", "examples/LearnFromStream/LearnFromStream.ino"}
    assert wanted <= names
    assert json.loads((out / "library.json").read_text())["license"] == "MIT"
    assert not [path for path in out.rglob("*") if path.is_file() and b"@network@" in path.read_bytes()]
    assert main(["device", "784-300-100-10", "--budget", "2662", "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--l1", "auto"], "l1 (='auto') must be a number"),
        (["--batch-size", "10"], "batch_size (=10) must be 1"),
        (["--optimizer", "adam"], "optimizer (='adam') must be sgd or momentum"),
        (["--method", "set"], "method (='set') must be 'deep-r'"),
        (["--activation", "tanh"], "activation (='tanh') must be 'relu'"),
        (["--weight-decay", "0.1"], "weight_decay (=0.1) must be 0.0"),
        (["--max-fan-in", "9"], "caps on the fan-in and fan-out and Dale's law are not kept on a chip"),
        (["--lr", "2", "--numbers", "fixed"], "lr (=2.0) must be below 1 in fixed point"),
        (["--freeze", "2"], "freeze (=2) must name a layer, 0 to 1"),
        (["--hidden", "9"], "omit --hidden"),
        (["--budget", "70000"], "at most 65,535 connections"),
    ],
)
def test_what_a_chip_cannot_do_is_said(more, said, tmp_path, capsys):
    assert main(["device", "784-300-10", "--budget", "400", "--out", str(tmp_path / "x"), *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_sizes_must_be_those_of_the_data(tmp_path, capsys):
    assert main(["device", "30-10", "--data", "digits", "--budget", "40", "--train", str(tmp_path / "x")]) == 2
    assert "sizes (=30-10) must be 64-10 for data 'digits'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 3)], "is followed by tanh"),
        ([nn.Linear(9, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)], "is a batch norm"),
        ([nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(-1)], "is followed by softmax"),
        ([nn.Linear(9, 8, bias=False), nn.ReLU(), nn.Linear(8, 3)], "either all layers have biases or none"),
    ],
)
def test_models_that_a_chip_cannot_train(layers, said, tmp_path):
    model = wb.sparsify(nn.Sequential(*layers), budget=40)
    with pytest.raises(ExportError, match=said):
        to_c_trainer(model, tmp_path / "trainer")
    assert not (tmp_path / "trainer").exists()


def test_a_state_goes_back_and_forth(tmp_path):
    """Bytes of a state are the model, in both formats; those of another network are refused."""
    model = wb.sparsify(nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 3)), budget=40, seed=2)
    other = wb.sparsify(nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 3)), budget=40, seed=2)
    for bias in (layer.bias for _, layer in wb.nn.sparse_layers(model)):
        torch.nn.init.normal_(bias)
    for numbers, near in (("float", 0.0), ("fixed", 2.0**-15)):
        network = read_trained(model, numbers=numbers)
        state = encode(network, model, steps=5)
        assert load_into(network, state, other) == 5
        for mine, its in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.allclose(mine, its, rtol=0, atol=near)
        assert torch.equal(wb.wirings(model)[0].positions(), wb.wirings(other)[0].positions())
        for at in (0, 30, len(state) - 1):
            with pytest.raises(DeviceStateError, match="no complete state"):
                load_into(network, state[:at] + bytes([state[at] ^ 1]) + state[at + 1 :], other)
        with pytest.raises(DeviceStateError, match="another network"):
            load_into(dataclasses.replace(network, seed=3), state, other)
