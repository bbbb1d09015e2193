"""Sparse recurrent layers as modules: names, state, copies, wirings from elsewhere, and what they refuse."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from recurrent_helpers import CLASSES, compare, make
from torch import nn

import wirebound as wb
from wirebound.nn.recurrent import matrix_shapes
from wirebound.wiring import LayerShape, Wiring

KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


@KINDS
def test_names_are_those_of_torch(kind):
    layer = make(kind, 5, 7, 2, connectivity=0.4, bidirectional=True)
    twin = layer.dense_twin()
    weights = [name for name, _ in twin.named_parameters() if name.startswith("weight")]
    assert layer.matrix_names == weights == [shape.name for shape in layer.wiring.layers]
    ours = {name: p.shape for name, p in layer.named_parameters() if name.startswith("bias")}
    theirs = {name: p.shape for name, p in twin.named_parameters() if name.startswith("bias")}
    assert ours == theirs
    assert [m.layer_id for m in layer.matrices()] == list(range(8))
    assert len(wb.wirings(layer)) == 1
    assert sum(name.endswith("theta") for name, _ in layer.named_parameters()) == 1
    assert layer.wiring.active == round(0.4 * layer.wiring.possible)


@KINDS
def test_copies_and_state(kind):
    layer = make(kind, 5, 7, 2, connectivity=0.4, bidirectional=True)
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    expected = layer(x)[0]
    expected.sum().backward()
    copied = copy.deepcopy(layer)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    other = make(kind, 5, 7, 2, connectivity=0.4, bidirectional=True, seed=9)
    other.load_state_dict(layer.state_dict())
    for twin in (copied, loaded, other):
        assert twin.wiring is not layer.wiring
        assert all(m.wiring is twin.wiring for m in twin.matrices())
        assert torch.equal(twin(x)[0], expected)
        twin.wiring.check()


@KINDS
def test_checkpoint(kind, tmp_path):
    layer = make(kind, 5, 7, connectivity=0.4, dtype=torch.float32)
    method = wb.DeepR(layer, torch.optim.Adam(layer.parameters()))
    x = torch.randn(4, 3, 5)
    layer(x)[0].sum().backward()
    method.step()
    wb.save(tmp_path / "checkpoint.safetensors", model=layer, method=method)
    other = make(kind, 5, 7, connectivity=0.4, seed=3, dtype=torch.float32)
    wb.load(tmp_path / "checkpoint.safetensors", model=other, method=wb.DeepR(other, torch.optim.Adam(other.parameters())))
    assert torch.equal(layer(x)[0], other(x)[0])


@KINDS
def test_layers_of_a_larger_wiring(kind):
    shapes = [LayerShape("first", 6, 5), *matrix_shapes(kind, 6, 7, 1, True, prefix="rnn."), LayerShape("last", 2, 14)]
    counts = [max(1, shape.possible // 3) for shape in shapes]
    wiring = Wiring(shapes, counts, seed=1, dtype=torch.float64)
    first = wb.SparseLinear(5, 6, wiring=wiring, layer_id=0)
    layer = CLASSES[kind](6, 7, bidirectional=True, wiring=wiring, layer_id=1, owner=False)
    last = wb.SparseLinear(14, 2, wiring=wiring, layer_id=5, owner=False)
    model = nn.ModuleDict({"first": first, "rnn": layer, "last": last})
    assert wb.wirings(model) == [wiring]
    assert sum(name.endswith("theta") for name, _ in model.named_parameters()) == 1
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    dense = wb.to_dense(model)
    assert type(dense["rnn"]) is layer.dense_class
    outcomes = [m["last"](m["rnn"](m["first"](x).tanh())[0]) for m in (model, dense)]
    torch.testing.assert_close(*outcomes)
    for outcome in outcomes:
        outcome.square().sum().backward()
    torch.testing.assert_close(first.bias.grad, dense["first"].bias.grad)
    edges = wiring.bounds
    matrix = layer.matrices()[1]
    gradient = dense["rnn"].weight_hh_l0.grad.t().reshape(-1)
    own = wiring.positions()[edges[2] : edges[3]] - wiring.geometry.position_start[2]
    signs = torch.where(wiring.packed_rows[edges[2] : edges[3]] < 0, -1.0, 1.0)
    assert matrix.layer_id == 2
    torch.testing.assert_close(wiring.theta.grad[edges[2] : edges[3]], gradient[own] * signs)


@KINDS
def test_to_dense_of_a_layer_alone(kind):
    layer = make(kind, 5, 7, 2, connectivity=0.4, dropout=0.5).eval()
    twin = wb.to_dense(layer)
    assert type(twin) is layer.dense_class
    assert not twin.training
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0], twin(x)[0])


@KINDS
def test_dropout_is_between_layers(kind):
    layer = make(kind, 5, 40, 2, connectivity=0.4, dropout=0.999999)
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    twin = copy.deepcopy(layer)
    for matrix in (twin.weight_ih_l1,):  # the second layer sees nothing of the first
        index = twin.wiring.layer_index(matrix.layer_id)
        with torch.no_grad():
            twin.wiring.theta[index.start : index.end] = 0
    torch.testing.assert_close(layer(x)[0], twin.eval()(x)[0])
    compare(layer.eval(), x)
    with pytest.warns(UserWarning, match="between layers"):
        make(kind, 5, 7, connectivity=0.4, dropout=0.5)


@KINDS
def test_seed_decides(kind):
    a, b, c = (make(kind, 5, 7, connectivity=0.4, seed=seed).wiring for seed in (1, 1, 2))
    assert torch.equal(a.packed_rows, b.packed_rows)
    assert torch.equal(a.theta, b.theta)
    assert not torch.equal(a.positions(), c.positions())


def test_text():
    layer = wb.SparseLSTM(5, 7, budget=30, bidirectional=True)
    assert "5, 7, bidirectional=True, active=30" in repr(layer)
    assert "(weight_hh_l0_reverse): SparseMatrix(28×7, active=" in repr(layer)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"proj_size": 3}, r"proj_size \(=3\) must be 0"),
        ({"connectivity": 1.7}, r"connectivity \(=1.7\) must be in \(0, 1\]"),
        ({"budget": 3}, "exactly one of connectivity"),
        ({"dropout": 1.5}, r"dropout \(=1.5\)"),
        ({"num_layers": 0}, r"num_layers \(=0\)"),
        ({"layer_id": 1}, r"layer_id \(=1\)"),
        ({"wiring": Wiring([LayerShape("a", 28, 4)], [3])}, r"layer 0 of the wiring .* must be .*weight_ih_l0.* \(=28 × 5\)"),
        ({"wiring": Wiring([LayerShape("a", 28, 5)], [3])}, r"layer 1 of the wiring \(=none\) must be .* \(=28 × 7\)"),
    ],
)
def test_wrong_settings(options, says):
    with pytest.raises(ValueError, match=says):
        wb.SparseLSTM(5, 7, **{"connectivity": 0.5, **options})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"x": torch.zeros(4, 3, 6)}, r"\(=6\) must be input_size \(=5\)"),
        ({"x": torch.zeros(5)}, "3 dimensions"),
        ({"x": torch.zeros(4, 3, 5, dtype=torch.float64)}, "dtype of the input"),
        ({"lengths": torch.tensor([1, 2])}, r"shape \(batch,\) = \(3,\)"),
        ({"lengths": torch.tensor([1.0, 2.0, 2.0])}, "whole numbers"),
        ({"lengths": torch.tensor([1, 5, 2])}, r"from 1 to 5\) must be in \[0, 4\]"),
        ({"lengths": torch.tensor([1, -1, 2])}, r"from -1 to 2\) must be in \[0, 4\]"),
        ({"mask": torch.ones(4, 3, dtype=torch.bool)}, r"\(batch, time\) = \(3, 4\)"),
        ({"mask": torch.ones(3, 4)}, "must be boolean"),
        ({"mask": torch.tensor([[True, False, True, False]] * 3)}, "gaps are not supported"),
        ({"mask": torch.ones(3, 4, dtype=torch.bool), "lengths": torch.tensor([1, 1, 1])}, "at most one"),
        ({"state": (torch.zeros(1, 2, 7), torch.zeros(1, 3, 7))}, r"\(1, 2, 7\)\) must be .* = \(1, 3, 7\)"),
        ({"state": (torch.zeros(1, 3, 7), torch.zeros(1, 3, 7).double())}, "dtype of an initial state"),
    ],
)
def test_wrong_inputs(arguments, says):
    with pytest.raises(ValueError, match=says):
        wb.SparseLSTM(5, 7, connectivity=0.5)(**{"x": torch.zeros(4, 3, 5), **arguments})


@KINDS
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [[4, 2, 1], [2, 4, 3]])
def test_packed_sequences_come_out_packed(kind, batch_first, lengths):
    layer = make(kind, 5, 7, connectivity=0.5, bidirectional=True, num_layers=2, batch_first=batch_first)
    x = torch.randn(*((3, 4) if batch_first else (4, 3)), 5, dtype=torch.float64)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first, enforce_sorted=lengths == [4, 2, 1])
    start = torch.randn(4, 3, 7, dtype=torch.float64)
    state = (start, start.flip(0)) if kind == "lstm" else start
    (y, last), (expected, expected_last) = layer(packed, state), layer.dense_twin()(packed, state)
    torch.testing.assert_close(y.data, expected.data)
    torch.testing.assert_close(last, expected_last)
    for name in ("batch_sizes", "sorted_indices", "unsorted_indices"):
        found, wanted = getattr(y, name), getattr(expected, name)
        assert (found is None and wanted is None) or torch.equal(found, wanted)


def test_wrong_types():
    packed = nn.utils.rnn.pack_padded_sequence(torch.zeros(4, 3, 5), torch.tensor([4, 2, 1]))
    with pytest.raises(ValueError, match="lengths of its own"):
        wb.SparseLSTM(5, 7, connectivity=0.5)(packed, lengths=torch.tensor([4, 2, 1]))
    with pytest.raises(TypeError, match="pair"):
        wb.SparseLSTM(5, 7, connectivity=0.5)(torch.zeros(4, 3, 5), torch.zeros(1, 3, 7))
    with pytest.raises(TypeError, match="one tensor"):
        wb.SparseGRU(5, 7, connectivity=0.5)(torch.zeros(4, 3, 5), (torch.zeros(1, 3, 7),) * 2)


@KINDS
def test_second_derivatives_and_late_changes_are_refused(kind):
    layer = make(kind, 5, 7, connectivity=0.5)
    x = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(layer(x)[0].sum(), layer.wiring.theta, create_graph=True)
    y = layer(x)[0].sum()
    with torch.no_grad():
        layer.wiring.theta.mul_(2)
    with pytest.raises(RuntimeError, match="modified"):
        y.backward()


def test_autocast():
    layer = wb.SparseLSTM(5, 7, connectivity=0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = layer(torch.randn(4, 3, 5, dtype=torch.bfloat16))
    assert y.dtype is torch.bfloat16
