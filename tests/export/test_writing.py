"""Where exports go: folders are made, names that are taken by something else are refused, nothing is half-written."""

import json
import os

import numpy as np
import pytest
import torch
from export_helpers import inputs_for, outputs_of, small_network
from scipy import sparse

import wirebound as wb
from wirebound.checkpoint import atomic
from wirebound.export import ExportError, read_network, to_c, to_nir, to_onnx, to_pynn, to_scipy

FILES = {"c": to_c, "onnx": to_onnx, "nir": to_nir}
FOLDERS = {"scipy": to_scipy, "pynn": to_pynn}
WRITERS = {**FILES, **FOLDERS}


@pytest.mark.parametrize("form", WRITERS)
def test_missing_folders_are_made(form, tmp_path):
    WRITERS[form](small_network("one-layer"), tmp_path / "a" / "b" / "net")
    assert (tmp_path / "a" / "b" / "net").exists()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["net"]


@pytest.mark.parametrize("form", FILES)
def test_a_folder_is_not_replaced_by_a_file(form, tmp_path):
    (tmp_path / "net").mkdir()
    with pytest.raises(ExportError, match="is a folder: give the name of a file in it"):
        FILES[form](small_network("one-layer"), tmp_path / "net")


@pytest.mark.parametrize("form", WRITERS)
def test_files_are_not_replaced_by_folders(form, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ExportError, match="is a file, not a folder"):
        WRITERS[form](small_network("one-layer"), tmp_path / "taken" / "net")
    if form in FOLDERS:
        with pytest.raises(ExportError, match="is a file: this format writes a folder"):
            FOLDERS[form](small_network("one-layer"), tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("before", [None, b"what was there before"], ids=["new", "old"])
def test_an_interrupted_write_leaves_what_was_there(form, before, tmp_path, monkeypatch):
    if before is not None:
        (tmp_path / "net").write_bytes(before)

    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "fsync", interrupted)  # everything is written, nothing is safe yet
    with pytest.raises(KeyboardInterrupt):
        FILES[form](small_network("one-layer"), tmp_path / "net")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == ({} if before is None else {"net": before})


@pytest.mark.parametrize("form", FOLDERS)
def test_an_interrupted_folder_is_not_there(form, tmp_path, monkeypatch):
    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", interrupted)  # the last file of a folder
    with pytest.raises(KeyboardInterrupt):
        FOLDERS[form](small_network("deep-r"), tmp_path / "net")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", FOLDERS)
def test_a_folder_that_is_there_keeps_its_other_files(form, tmp_path):
    FOLDERS[form](small_network("deep-r"), tmp_path / "net")
    (tmp_path / "net" / "notes.txt").write_text("mine")
    FOLDERS[form](small_network("fixed"), tmp_path / "net")
    assert (tmp_path / "net" / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["net"]
    if form == "scipy":
        wanted = read_network(small_network("fixed")).layers[0].dense()
        np.testing.assert_array_equal(sparse.load_npz(tmp_path / "net" / "layer_0.npz").toarray(), wanted)


def test_folders_can_be_read_by_whom_the_umask_lets(tmp_path):
    before = os.umask(0o022)
    try:
        to_scipy(small_network("one-layer"), tmp_path / "net")
    finally:
        os.umask(before)
    assert (tmp_path / "net").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_become_32_bits(dtype, tmp_path):
    model = small_network("layer-scope").to(dtype)
    x = inputs_for(model)
    wanted = outputs_of(small_network("layer-scope").to(dtype).float(), x)
    np.testing.assert_allclose(read_network(model).forward(x), wanted, rtol=1e-4, atol=1e-5)


def test_numbers_that_do_not_fit_are_refused(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2).double())
    with torch.no_grad():
        model[0].bias[1] = 1e300
    with pytest.raises(ExportError, match="the biases of layer '0' must be finite as 32-bit floats"):
        to_c(model, tmp_path / "n.h")
    with torch.no_grad():
        model[0].weight[1, 1] = -1e300
    with pytest.raises(ExportError, match="the weights of layer '0' must be finite as 32-bit floats"):
        to_scipy(model, tmp_path / "net")
    with pytest.raises(ExportError, match=r"pixels \(=nan\) must be a finite number"):
        to_c(small_network("one-layer"), tmp_path / "n.h", pixels=float("nan"))
    for settings in ({"delay": float("inf")}, {"gain": float("nan")}):
        with pytest.raises(ExportError, match="and finite"):
            to_pynn(small_network("one-layer"), tmp_path / "net", **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_dormant_connection_has_no_weight():
    """θ < 0 means dormant, whoever moved it there."""
    model = torch.nn.Sequential(wb.SparseLinear(6, 5, budget=20))
    before = read_network(model).layers[0]
    with torch.no_grad():
        model[0].wiring.theta[3:7] *= -1
    after = read_network(model).layers[0]
    assert len(after) == len(before) - 4
    full, kept = before.dense(), after.dense()
    assert (full != kept).sum() == 4
    assert (kept[full != kept] == 0).all()


def test_a_model_without_weights_is_refused(tmp_path):
    for model in (torch.nn.Linear(3, 2, device="meta"), torch.nn.Sequential(wb.SparseLinear(3, 2, budget=2).to("meta"))):
        with pytest.raises(ExportError, match="is on the meta device and has no weights"):
            to_c(model, tmp_path / "n.h")
    with pytest.raises(ExportError, match="must have inputs and outputs"), pytest.warns(UserWarning, match="zero-element"):
        to_c(torch.nn.Sequential(torch.nn.Linear(0, 3)), tmp_path / "n.h")
