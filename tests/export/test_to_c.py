"""The C header, compiled by gcc as strictly as it can, against torch."""

import re
import shutil

import numpy as np
import pytest
import torch
from c_export import run_header
from export_helpers import inputs_for, outputs_of, small_network

from wirebound.export import ExportError, read_network, to_c
from wirebound.export.c_code import compact, quantised
from wirebound_lab import data as datasets
from wirebound_lab.run.export_source import open_source

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def test_float_code_computes_what_torch_does(network, tmp_path):
    x = inputs_for(network)
    to_c(network, tmp_path / "n.h")
    np.testing.assert_allclose(run_header(tmp_path / "n.h", x), outputs_of(network, x), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("scales", ["row", "layer"])
@pytest.mark.parametrize("kind", ["deep-r", "tanh", "empty-layer", "wide", "one-layer"])
def test_int8_code_computes_the_rounded_network(kind, scales, tmp_path):
    model = small_network(kind)
    x = inputs_for(model)
    to_c(model, tmp_path / "n.h", weights="int8", scales=scales, name="net")
    rounded = quantised(read_network(model), scales)
    got = run_header(tmp_path / "n.h", x, "net")
    np.testing.assert_allclose(got, rounded.forward(x), rtol=2e-5, atol=2e-5)
    for layer, other in zip(read_network(model).layers, rounded.layers, strict=True):
        if len(layer):  # rounding is to the nearest of 255 steps
            assert np.abs(layer.weights - other.weights).max() <= np.abs(layer.weights).max() / 127 / 2 * 1.001


def test_predictions_on_mnist(mnist_run, tmp_path):
    source, data = open_source(mnist_run), datasets.load("mnist")
    pixels, x = data.test_x.flatten(1).numpy(), data.inputs("test", flatten=True)
    with torch.no_grad():
        theirs = source.model.eval()(x).numpy()
    to_c(source.model, tmp_path / "f.h", pixels=1 / 255)
    ours = run_header(tmp_path / "f.h", pixels)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-4)
    assert (ours.argmax(1) == theirs.argmax(1)).mean() >= 0.9998  # ties up to rounding
    right = (theirs.argmax(1) == data.test_y.numpy()).mean()
    assert right == pytest.approx(source.result["test_accuracy"], abs=1e-4)
    written = to_c(source.model, tmp_path / "i.h", weights="int8", pixels=1 / 255)
    int8 = (run_header(tmp_path / "i.h", pixels).argmax(1) == data.test_y.numpy()).mean()
    assert int8 > right - 0.01
    # int8 weight and one byte of step for each of 2,662 connections, and what the rows need
    assert written.flash < 2 * 2662 * 1.05 + 410 * (1 + 4) + 12


def test_bytes_are_counted_from_the_code(network, tmp_path):
    written = to_c(network, tmp_path / "n.h")
    text = (tmp_path / "n.h").read_text()
    width = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "float": 4, "int8_t": 1}
    arrays = re.findall(r"static (const )?(\w+) \w+\[(\d+)\]", text)
    assert written.flash == sum(width[kind] * int(size) for const, kind, size in arrays if const)
    assert written.ram == sum(width[kind] * int(size) for const, kind, size in arrays if not const)
    assert f"NETWORK_FLASH_BYTES {written.flash}\n" in text
    assert f"NETWORK_RAM_BYTES {written.ram}\n" in text
    assert "malloc" not in text


def test_the_smaller_kind_of_step_is_taken():
    layers = compact(read_network(small_network("wide")), 8, "layer")
    assert layers[0].steps.dtype == np.uint16  # 20 connections in 1.4 million places: bytes would need many stones
    assert layers[1].steps.dtype == np.uint8
    for item in layers:
        ends = np.cumsum(item.counts.astype(int))
        for row, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            columns = np.cumsum(item.steps[start:end].astype(int))
            kept = item.values[start:end] != 0
            mine = (item.layer.rows == row) & np.isin(item.layer.columns, columns[kept])
            assert mine.sum() == kept.sum()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": "int4"}, "weights (='int4') must be"),
        ({"scales": "column"}, "scales (='column') must be"),
        ({"name": "2 nets"}, "must be a C identifier"),
    ],
)
def test_wrong_settings(settings, message, tmp_path):
    with pytest.raises(ExportError, match=re.escape(message)):
        to_c(small_network("one-layer"), tmp_path / "n.h", **settings)
    assert not (tmp_path / "n.h").exists()


def test_other_models_are_refused(tmp_path):
    with pytest.raises(ExportError, match="module '1' \\(=LayerNorm\\)"):
        to_c(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3)), tmp_path / "n.h")
