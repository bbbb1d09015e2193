"""``SparseRNN`` and the cells beside torch's with the same weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from recurrent_helpers import compare, make
from torch import Tensor, nn

import wirebound as wb
from wirebound.ops.layout import rows_of, signs_of

both = pytest.mark.usefixtures("implementation")
CELLS = [(nn.LSTMCell, {}), (nn.GRUCell, {}), (nn.RNNCell, {}), (nn.RNNCell, {"nonlinearity": "relu"})]
every_cell = pytest.mark.parametrize(("dense", "options"), CELLS, ids=["lstm", "gru", "tanh", "relu"])


@both
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"batch_first": True, "num_layers": 2},
        {"bidirectional": True, "num_layers": 2},
    ],
    ids=["plain", "no bias", "two layers", "bidirectional"],
)
def test_an_rnn_is_torchs(nonlinearity: str, options: dict[str, Any]) -> None:
    layer = make("rnn", 5, 7, connectivity=0.4, nonlinearity=nonlinearity, **options)
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    batch = 4 if layer.batch_first else 3
    directions = 2 if layer.bidirectional else 1
    compare(layer, x)
    compare(layer, x, torch.randn(directions * layer.num_layers, batch, 7, dtype=torch.float64))
    steps = x.shape[1] if layer.batch_first else x.shape[0]
    compare(layer, x, lengths=torch.tensor([1, steps, 2, 1][:batch]))
    assert type(wb.to_dense(layer)) is nn.RNN
    assert wb.to_dense(layer).nonlinearity == nonlinearity


@both
def test_an_rnn_without_a_batch_or_a_gradient() -> None:
    layer = make("rnn", 5, 7, connectivity=0.4, nonlinearity="relu")
    x = torch.randn(4, 5, dtype=torch.float64)
    compare(layer, x)
    with torch.no_grad():
        torch.testing.assert_close(layer(x)[0], layer.dense_twin()(x)[0])


def of_theta(wiring: wb.Wiring, part: int, gradient: Tensor) -> Tensor:
    """A dense gradient at the connections of a matrix, with respect to θ."""
    index = wiring.layer_index(part)
    packed_rows, colptr = index.layer_packed_rows(), index.layer_colptr()
    columns = torch.repeat_interleave(torch.arange(colptr.numel() - 1), colptr.diff())
    return gradient[rows_of(packed_rows), columns] * signs_of(packed_rows, gradient.dtype)


def unroll(cell: nn.Module, x: Tensor, state: Any) -> Tensor:
    """Three steps; the sum of all states, weighted."""
    total = x.new_zeros(())
    for number, step in enumerate(x):
        state = cell(step, state)
        h = state[0] if isinstance(state, tuple) else state
        total = total + (number + 1) * h.square().sum()
    return total + (state[1].sum() if isinstance(state, tuple) else 0)


@both
@every_cell
@pytest.mark.parametrize("bias", [True, False])
def test_a_cell_is_torchs(dense: type[nn.RNNCellBase], options: dict[str, Any], bias: bool) -> None:
    torch.manual_seed(0)
    cell = wb.sparsify(dense(5, 7, bias, **options).double(), 0.4)
    (wiring,) = wb.wirings(cell)
    wiring.watch = {}
    assert [layer.name for layer in wiring.layers] == ["weight_ih", "weight_hh"]
    assert wiring.budget == round(0.4 * wiring.possible)
    twin = wb.to_dense(cell)
    assert type(twin) is dense
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    state: Any = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    if dense is nn.LSTMCell:
        state = (state, torch.randn(2, 7, dtype=torch.float64))
    outcomes = [unroll(one, x, state) for one in (cell, twin)]
    torch.testing.assert_close(*outcomes)
    inputs = [x, state[0] if isinstance(state, tuple) else state]
    ours, theirs = (torch.autograd.grad(outcome, inputs, retain_graph=True) for outcome in outcomes)
    torch.testing.assert_close(ours, theirs)
    for sources in wiring.watch.values():
        sources.clear()
    for outcome in outcomes:
        outcome.backward()
    expected = [of_theta(wiring, part, p.grad) for part, p in enumerate((twin.weight_ih, twin.weight_hh))]
    torch.testing.assert_close(wiring.theta.grad, torch.cat(expected))
    if bias:
        torch.testing.assert_close(cell.bias_ih.grad, twin.bias_ih.grad)
        torch.testing.assert_close(cell.bias_hh.grad, twin.bias_hh.grad)
    for part, weight in enumerate((twin.weight_ih, twin.weight_hh)):  # what RigL sees
        gradient = sum(source.block(0, weight.shape[1]) for source in wiring.watch[part])
        torch.testing.assert_close(gradient, weight.grad)


@every_cell
def test_a_cell_without_a_state_or_a_batch(dense: type[nn.RNNCellBase], options: dict[str, Any]) -> None:
    cell = wb.sparsify(dense(5, 7, **options), 0.4)
    x = torch.randn(5)
    torch.testing.assert_close(cell(x), wb.to_dense(cell)(x))
    torch.testing.assert_close(cell(input=x[None], hx=None), wb.to_dense(cell)(x[None]))
    with pytest.raises(ValueError, match="must be input_size"):
        cell(torch.randn(2, 4))
    with pytest.raises(ValueError, match="must have 2 dimensions"):
        cell(torch.randn(2, 2, 5))


def test_cells_refuse_states_that_do_not_fit() -> None:
    cell = wb.SparseGRUCell(5, 7, budget=20)
    with pytest.raises(ValueError, match=r"shape of a state \(=\(2, 6\)\) must be \(2, 7\)"):
        cell(torch.randn(2, 5), torch.randn(2, 6))
    with pytest.raises(TypeError, match="must be a pair"):
        wb.SparseLSTMCell(5, 7, budget=20)(torch.randn(2, 5), torch.randn(2, 7))
    with pytest.raises(ValueError, match="dtype of the input"):
        cell(torch.randn(2, 5).double())
    with pytest.raises(ValueError, match="nonlinearity"):
        wb.SparseRNN(5, 7, nonlinearity="sin", budget=20)


class Reader(nn.Module):
    """A cell in a loop, an RNN behind it, a head."""

    def __init__(self, cell: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell, self.rnn, self.head = cell(5, 8), nn.RNN(8, 6, nonlinearity="relu", batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        state, seen = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            seen.append(state[0] if isinstance(state, tuple) else state)
        return self.head(self.rnn(torch.stack(seen, 1))[0][:, -1])


METHODS = {
    "deep_r": lambda m, o: wb.DeepR(m, o, l1=1e-2),
    "set": lambda m, o: wb.SET(m, o, every=3),
    "rigl": lambda m, o: wb.RigL(m, o, every=3, until=30),
    "fixed": lambda m, o: wb.Fixed(m, o),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_they_train_within_the_budget(method: str, cell: type[nn.RNNCellBase]) -> None:
    torch.manual_seed(0)
    model = wb.sparsify(Reader(cell), 0.4, scope="layer" if method == "set" else "global")
    rewiring = METHODS[method](model, torch.optim.Adam(model.parameters(), lr=0.03))
    x, labels = torch.randn(12, 4, 5), torch.arange(12) % 3
    losses = []
    for _ in range(12):
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        info = rewiring.step()
        rewiring.zero_grad()
        losses.append(loss.item())
        assert info.active == info.budget
    assert losses[-1] < losses[0]
    for wiring in wb.wirings(model):
        wiring.check()
    copied, other = copy.deepcopy(model), wb.sparsify(Reader(cell), 0.4, scope="layer" if method == "set" else "global")
    if method == "deep_r":
        other.load_state_dict(model.state_dict())
        torch.testing.assert_close(other(x), model(x))
    torch.testing.assert_close(copied(x), model(x))
    torch.testing.assert_close(wb.to_dense(model)(x), model(x))
