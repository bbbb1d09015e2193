"""Small files that declare huge networks: refused with the sizes, before memory is asked for."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hostile import HUGE, empty_matrix, huge_outputs, wide_and_tall

import wirebound as wb
from wirebound.checkpoint import CheckpointError
from wirebound.checkpoint.container import Container, write_container
from wirebound.export import ExportError, read_network, to_c, to_nir, to_onnx, to_pynn, to_scipy
from wirebound.export.c_code import compact
from wirebound.export.layers import Layer, Network
from wirebound_lab.run.export_source import open_source

WRITERS = {"scipy": to_scipy, "onnx": to_onnx, "nir": to_nir, "pynn": to_pynn, "c": to_c}

# Under a limit on the address space, so that an array of a declared size cannot be had.
_LIMITED = """
import json, resource, sys
import scipy.sparse
from wirebound_lab.cli import export, main  # the command imports its module when it is called
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), resource.RLIM_INFINITY))
codes = {}
for number, arguments in enumerate(json.loads(sys.argv[1])):
    try:
        codes[number] = main(arguments)
    except BaseException as error:
        codes[number] = repr(error)[:200]
print(json.dumps(list(codes.values())))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
def test_a_kilobyte_cannot_ask_for_gigabytes(tmp_path):
    path = huge_outputs(tmp_path / "m.safetensors")
    assert path.stat().st_size < 1600
    capped = huge_outputs(tmp_path / "caps.safetensors", caps=True)
    biased = empty_matrix(tmp_path / "biased.safetensors", bias=True)
    forms = (["scipy"], ["pynn"], ["c"], ["c", "--weights", "int8", "--scales", "row"])
    jobs = [["export", str(path), "--out", str(tmp_path / "out"), "--to", *form] for form in forms]
    jobs += [["export", str(other), "--out", str(tmp_path / "out"), "--to", "c"] for other in (capped, biased)]
    done = subprocess.run([sys.executable, "-c", _LIMITED, json.dumps(jobs)], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout.splitlines()[-1]) == [2] * len(jobs), done.stderr
    for told in (f"{HUGE:,} outputs", "only 3 weights and biases", "must have 1099511627776 biases", "has caps on"):
        assert told in done.stderr
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".safetensors"] * 3


def test_a_matrix_in_full_is_refused_where_it_is_out_of_proportion(tmp_path):
    model = open_source(wide_and_tall(tmp_path / "m.safetensors")).model
    for write in (lambda path: to_onnx(model, path, dense=True), lambda path: to_nir(model, path)):
        with pytest.raises(ExportError, match=r"takes 274,877,906,944 bytes for a model of 24 bytes"):
            write(tmp_path / "x")
    assert to_onnx(model, tmp_path / "x").stat().st_size < 1000


@pytest.mark.parametrize("form", WRITERS)
def test_the_same_of_a_model_in_python(form, tmp_path):
    model = torch.nn.Sequential(wb.SparseLinear(4, HUGE, False, budget=3))
    with pytest.raises(ExportError, match=re.escape(f"the layers have {HUGE:,} outputs (module '0' (=SparseLinear)")):
        WRITERS[form](model, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_dense_matrices_without_inputs(tmp_path):
    with pytest.raises(CheckpointError, match="must have 1099511627776 biases"):
        open_source(empty_matrix(tmp_path / "m.safetensors", bias=True))
    with pytest.warns(UserWarning, match="zero-element"):
        model = open_source(empty_matrix(tmp_path / "m.safetensors", bias=False)).model
    with pytest.raises(ExportError, match="1,099,511,627,776 outputs"):
        read_network(model)


def test_a_run_folder_cannot_say_more_than_its_model_holds(mnist_run, tmp_path):
    with Container(mnist_run / "model.safetensors") as file:
        document, tensors = file.document, {name: file.tensor(name) for name in file.entries}
    del document["model"]["stack"]
    write_container(tmp_path / "model.safetensors", tensors, document)
    summary = json.loads((mnist_run / "summary.json").read_text())
    (tmp_path / "config.json").write_bytes((mnist_run / "config.json").read_bytes())
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert open_source(tmp_path).model[0].in_features == 784
    summary["layers"][0]["shape"][1] = 10**12
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(ExportError, match="a network of sizes 1000000000000-300-100-10 takes at least"):
        open_source(tmp_path)


def test_wide_gaps_do_not_become_more_stones_than_connections():
    """One connection at the end of each of many wide rows: in steps of a byte that would be a matrix in all but name."""
    n = 1 << 22
    rows = np.arange(2000)
    layer = Layer("wide", 2000, n, rows, np.full(2000, n - 1), np.ones(2000, np.float32), None, "linear")
    (found,) = compact(Network((layer,)), 32, "layer")
    assert (found.steps.dtype, len(found.steps)) == (np.uint32, 2000)
    assert found.counts.tolist() == [1] * 2000
