"""Files of stacks with convolutions, batch norms and other modules: built from the file alone, and by the command."""

import re
import shutil

import numpy as np
import pytest
import torch
from c_export import run_header
from chain_models import chain_inputs, chain_model, chain_outputs
from torch import nn

import wirebound as wb
from wirebound.checkpoint import CheckpointError
from wirebound.checkpoint.container import Container, write_container
from wirebound.export import ExportError, read_network
from wirebound_lab.cli import main
from wirebound_lab.run.export_source import model_card, open_source

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")
STACKS = ("norm-behind", "norm-before", "gelu", "others", "conv-settings", "norm-and-padding", "means", "pools", "conv1d")


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", STACKS)
def test_a_file_is_enough(name, sparse, tmp_path):
    model, x = chain_model(name, sparse=sparse), chain_inputs(name)
    wb.save(tmp_path / "m.safetensors", model=model)
    state = torch.get_rng_state()
    found = open_source(tmp_path / "m.safetensors").model
    assert torch.equal(state, torch.get_rng_state())
    assert list(found.state_dict()) == list(model.state_dict())
    np.testing.assert_array_equal(chain_outputs(found, x), chain_outputs(model, x))
    assert str(found) == str(model)
    assert model_card(tmp_path / "m.safetensors")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_the_command(tmp_path, capsys):
    model, x = chain_model("means"), chain_inputs("means")
    wb.save(tmp_path / "m.safetensors", model=model)
    job = ["export", str(tmp_path / "m.safetensors"), "--to", "c", "--out", str(tmp_path / "n.h")]
    assert main(job) == 2
    assert "give input_shape" in capsys.readouterr().err
    assert main([*job, "--input-shape", "2,9,7"]) == 0
    np.testing.assert_allclose(
        run_header(tmp_path / "n.h", x.reshape(len(x), -1)), chain_outputs(model, x), rtol=1e-4, atol=1e-5
    )
    with pytest.raises(SystemExit):
        main([*job, "--input-shape", "2,x"])
    assert "must be whole numbers" in capsys.readouterr().err


def test_what_a_file_cannot_say_is_kept_without_a_stack(tmp_path):
    for odd in (nn.Dropout(torch.tensor(0.5)), nn.BatchNorm1d(4, affine=False, track_running_stats=False)):
        model = nn.Sequential(nn.Linear(3, 4), odd)
        wb.save(tmp_path / "m.safetensors", model=model)
        wb.load(tmp_path / "m.safetensors", model=model)
        with pytest.raises(CheckpointError, match="no plain stack"):
            open_source(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("number", "value", "message"),
    [
        (0, {}, "must be groups, kernel_size, stride"),
        (0, {"kernel_size": [10**9, 10**9]}, "must fit its matrix of 18 columns"),
        (0, {"kernel_size": [3, 3, 3]}, "must be numbers or a text"),
        (0, {"groups": 0}, "must fit its matrix"),
        (0, {"groups": -2}, "must fit its matrix"),
        (0, {"stride": [0, 1]}, "do not fit"),
        (0, {"padding": "os.system"}, "do not fit"),
        (0, {"dilation": 10**30}, "must be numbers or a text"),
        (2, {"kernel_size": {"$": 1}}, "must be numbers or a text"),
        (1, {"p": 1}, "must be none"),
    ],
)
def test_wrong_settings(number, value, message, tmp_path):
    wb.save(tmp_path / "m.safetensors", model=chain_model("means"))
    with Container(tmp_path / "m.safetensors") as file:
        document, tensors = file.document, {name: file.tensor(name) for name in file.entries}
    item = document["model"]["stack"][number]
    item["settings"] = {**item.get("settings", {}), **value} if value else {}
    write_container(tmp_path / "m.safetensors", tensors, document)
    with pytest.raises(CheckpointError, match=re.escape(message)):
        open_source(tmp_path / "m.safetensors")


def test_declared_padding_does_not_become_memory(tmp_path):
    model = wb.sparsify(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1 << 20), nn.AvgPool2d(2, 2)), connectivity=0.5)
    wb.save(tmp_path / "m.safetensors", model=model)
    source = str(tmp_path / "m.safetensors")
    with pytest.raises(ExportError, match=r"give up to [\d,]+ numbers, far more than it holds"):
        wb.export.to_c(open_source(tmp_path / "m.safetensors").model, tmp_path / "n.h", input_shape=(1, 8, 8))
    assert main(["export", source, "--to", "onnx", "--out", str(tmp_path / "n.onnx")]) == 0


def test_a_negative_variance_is_refused():
    model = chain_model("norm-behind")
    model[1].running_var[2] = -5
    with pytest.raises(ExportError, match=r"module '1' \(=BatchNorm1d\) must be finite"):
        read_network(model)
