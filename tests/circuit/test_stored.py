"""The matrices of a model's file, read without torch, are those of the model."""

import numpy as np
import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound_lab.circuit.graph import read_graph
from wirebound_lab.circuit.stored import Matrix, read_matrices, strongest
from wirebound_lab.gpt import sparse_gpt
from wirebound_lab.report import ReportError


def _dense(matrix: Matrix) -> np.ndarray:
    found = np.zeros((matrix.n_out, matrix.n_in), np.float32)
    found[matrix.rows, matrix.columns] = matrix.weights
    return found


@pytest.fixture(scope="module")
def gpt_file(tmp_path_factory):
    model = sparse_gpt(900, vocab=7, context=6, width=16, depth=2, heads=4, mlp_factor=2)
    file = tmp_path_factory.mktemp("gpt") / "model.safetensors"
    wb.save(file, model=model)
    return model, file


def test_every_weight_is_where_the_model_has_it(gpt_file):
    model, file = gpt_file
    matrices, (wiring,) = read_matrices(file), wb.wirings(model)
    assert [matrix.name for matrix in matrices] == [layer.name for layer in wiring.layers]
    for layer, matrix in enumerate(matrices):
        assert np.array_equal(_dense(matrix), wiring.layer_dense(layer).detach().numpy())
    assert np.array_equal(np.concatenate([m.numbers for m in matrices]), np.arange(900))


def test_dense_matrices_are_read_in_their_place(tmp_path):
    model = wb.sparsify(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), budget=8, exclude="0", seed=0)
    wb.save(tmp_path / "model.safetensors", model=model)
    dense, sparse = read_matrices(tmp_path / "model.safetensors")
    assert (dense.name, sparse.name) == ("0", "2")
    assert torch.equal(torch.from_numpy(_dense(dense)), model[0].weight.detach())
    assert (dense.numbers == -1).all()


def test_above_the_bound_each_neuron_keeps_its_strongest(gpt_file):
    matrices = read_matrices(gpt_file[1])
    kept = strongest(matrices, 500)
    assert sum(len(matrix.weights) for matrix in kept) == 500
    assert strongest(matrices, 900) is matrices
    for before, after in zip(matrices, kept, strict=True):
        for column in np.unique(before.columns):
            best = np.abs(before.weights[before.columns == column]).max()
            assert best in np.abs(after.weights[after.columns == column])


def test_a_gpt_has_channels_heads_and_an_order_of_time(gpt_file):
    graph = read_graph(read_matrices(gpt_file[1]), {"heads": 4}, {"token_names": list("abc \n'\"")})
    sizes = {group.title: group.size for group in graph.groups}
    assert graph.kind == "gpt"
    assert sizes["token {}"] == 7
    assert sizes["residual channel {}"] == 16
    assert sizes["block 1 unit {}"] == 32
    assert graph.groups[0].names[3:5] == ["space", "newline"]
    heads = graph.groups[-1]
    assert heads.size == 8
    assert heads.names[5] == "block 1 head 1"
    times = {part.matrix.name: part.time for part in graph.parts}
    inner = ("attention.query_key_value", "attention.out", "mlp.up", "mlp.down")
    order = ["embed", *(f"blocks.{block}.{name}" for block in range(2) for name in inner), "head"]
    assert [times[name] for name in order] == list(range(10))
    assert times["place"] == 0
    # Nodes of a matrix lie within the groups that it joins.
    out = next(part for part in graph.parts if part.matrix.name == "blocks.1.attention.out")
    (value,) = [group for group in graph.groups if group.title == "block 1 value {}"]
    assert out.source == value.first
    assert heads.members[4][2] == value.first


def test_matrices_that_do_not_follow_each_other_stay_apart():
    empty = np.zeros(0, np.int64)
    matrices = [Matrix(name, *shape, empty, empty, empty.astype(np.float32), empty) for name, shape in (("a", (4, 9)), ("b", (3, 5)))]
    graph = read_graph(matrices, {}, {})
    assert graph.kind == "apart"
    assert [group.size for group in graph.groups] == [9, 4, 5, 3]


def test_another_file_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ReportError, match="must be a file that"):
        read_matrices(tmp_path / "model.safetensors")
