"""The .npz files, as scipy.sparse opens them."""

import json

import numpy as np
from export_helpers import inputs_for, outputs_of, small_network
from scipy import sparse

import wirebound as wb
from wirebound.export import read_network, to_scipy


def test_scipy_computes_what_torch_does(network, tmp_path):
    x = inputs_for(network)
    files = to_scipy(network, tmp_path / "net")
    y = x
    for file in files:
        matrix, more = sparse.load_npz(file), np.load(file)
        assert matrix.format == "csr"
        y = (matrix @ y.T).T + more["bias"]
        kind = str(more["activation"])
        y = {"relu": lambda y: np.maximum(y, 0), "tanh": np.tanh, "sigmoid": lambda y: 1 / (1 + np.exp(-y))}.get(
            kind, lambda y: y
        )(y)
    np.testing.assert_allclose(y, outputs_of(network, x), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(read_network(network).forward(x), y, rtol=2e-5, atol=2e-6)


def test_every_connection_is_there_newborns_too(tmp_path):
    model = small_network("deep-r")
    files = to_scipy(model, tmp_path)
    counts = [sparse.load_npz(file).nnz for file in files]
    assert counts == wb.wirings(model)[0].layer_active
    assert (wb.wirings(model)[0].theta == 0).any()
    listed = json.loads((tmp_path / "network.json").read_text())["layers"]
    assert [item["connections"] for item in listed] == counts
    assert [item["file"] for item in listed] == [file.name for file in files]
