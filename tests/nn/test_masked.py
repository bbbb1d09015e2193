"""Parameters without a sparse layer under a wiring: masked dense storage."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound.nn.masked import MaskedParameter


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 6), nn.Flatten(), nn.Linear(18, 4))


def masked(**options: object) -> nn.Sequential:
    return wb.sparsify(network().double(), 0.4, include=["0.weight", nn.Linear], **options)


WORDS = torch.tensor([[1, 2, 3], [4, 4, 19]])


@pytest.mark.parametrize(
    "include",
    ["0.weight", "0", nn.Embedding, [lambda name, module: name == "0"]],
    ids=["parameter", "module", "type", "function"],
)
def test_a_module_or_its_parameter_can_be_named(include: object) -> None:
    model = wb.sparsify(network(), 0.3, include=include)
    (wiring,) = wb.wirings(model)
    assert [layer.name for layer in wiring.layers] == ["0.weight"]
    assert wiring.budget == round(0.3 * 120)
    assert int((model[0].weight != 0).sum()) == wiring.budget
    assert type(model[2]) is nn.Linear


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_equals_the_dense_model_in_outputs_and_gradients(scope: str) -> None:
    model = masked(scope=scope)
    twin = wb.to_dense(model)
    assert type(twin[0]) is nn.Embedding
    assert isinstance(twin[0].weight, nn.Parameter)
    for network in (model, twin):
        network(WORDS).square().sum().backward()
    torch.testing.assert_close(model(WORDS), twin(WORDS))
    got = torch.cat([w.theta.grad * torch.where(w.packed_rows < 0, -1.0, 1.0) for w in wb.wirings(model)])
    dense = torch.cat([twin[i].weight.grad.t().reshape(-1) for i in (0, 2)])
    offset, positions = 0, []
    for wiring in wb.wirings(model):
        positions.append(wiring.positions() + offset)
        offset += wiring.possible
    torch.testing.assert_close(got, dense[torch.cat(positions)])


def test_trains_within_the_budget() -> None:
    model = masked()
    method = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.05), l1=1e-2)
    born = 0
    for _ in range(40):
        nn.functional.cross_entropy(model(WORDS), torch.tensor([0, 3])).backward()
        info = method.step()
        method.zero_grad()
        born += info.rewired
        assert info.active == info.budget
        assert int((model[0].weight != 0).sum()) <= info.layers[0].active
    assert born > 0
    for wiring in wb.wirings(model):
        wiring.check()


def test_keeps_the_largest_of_the_dense_weights() -> None:
    dense = network()
    before = dense[0].weight.detach().clone()
    model = wb.sparsify(dense, budget=30, include="0.weight", keep="largest")
    threshold = before.abs().flatten().topk(30).values[-1]
    torch.testing.assert_close(model[0].weight, torch.where(before.abs() >= threshold, before, 0.0))


def test_watched_it_leaves_the_dense_gradient() -> None:
    model = masked()
    twin = wb.to_dense(model)
    (wiring,) = wb.wirings(model)
    wiring.watch = {}
    for network in (model, twin):
        network(WORDS).square().sum().backward()
    (source,) = wiring.watch[0]
    torch.testing.assert_close(torch.cat([source.block(0, 4), source.block(4, 6)], 1), twin[0].weight.grad)


def test_copies_files_and_state() -> None:
    model = masked()
    y = model(WORDS)
    for _ in range(2):
        twin = copy.deepcopy(model)
        assert wb.wirings(twin)[0] is not wb.wirings(model)[0]
        assert isinstance(twin[0], nn.Embedding)
        torch.testing.assert_close(twin(WORDS), y)
        model = twin
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(WORDS), y)
    other = masked(seed=3)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(WORDS), y)


def test_meta_models() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(20, 6), nn.Flatten(), nn.Linear(18, 4))
    model = wb.sparsify(model, 0.3, include=["0.weight", "2"])
    assert model(WORDS).shape == (2, 4)


def test_ledger_counts_the_dense_weight_and_its_gradient() -> None:
    entries = {entry.part: entry.bytes for entry in wb.ledger(masked()).entries}
    assert entries["dense weights in a pass"] == 2 * 20 * 6 * 8
    assert "dense weights in a pass" not in {e.part for e in wb.ledger(wb.sparsify(network(), 0.3)).entries}


def test_tied_weights_are_refused_in_either_order() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embedding.weight

    with pytest.raises(ValueError, match="'head' is tied to 'embedding', which stays dense"):
        wb.sparsify(Tied(), 0.5)
    with pytest.raises(ValueError, match="'embedding' is tied to 'head', which stays dense"):
        wb.sparsify(Tied(), 0.5, include="embedding.weight")
    with pytest.raises(ValueError, match="the weight of 'head' is also that of 'embedding'"):
        wb.sparsify(Tied(), 0.5, include=["embedding", "head"])


def test_several_parameters_of_one_module() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5, 3, 2))
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * torch.einsum("bi,ij,jkl->bkl", x, self.a, self.b)

    model = wb.sparsify(Own(), 0.5, include=["a", "b"])
    assert [type(m) for m in model.children()] == [MaskedParameter, MaskedParameter]
    (wiring,) = wb.wirings(model)
    assert [(s.name, s.n_out, s.n_in) for s in wiring.layers] == [("a", 4, 5), ("b", 15, 2)]
    x = torch.randn(2, 4)
    model(x).sum().backward()
    twin = wb.to_dense(model)
    torch.testing.assert_close(model(x), twin(x))
    assert wiring.theta.grad is not None


class _SavesItself(nn.Module):
    """Writes its weight by name, as torch_geometric's Linear does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t()

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[f"{prefix}weight"] = self.weight if keep_vars else self.weight.detach()


def test_a_module_that_writes_its_state_itself_round_trips():
    model, other = (wb.sparsify(nn.Sequential(_SavesItself()), 0.3, include="0.weight", seed=seed) for seed in (1, 2))
    assert "0.weight" not in model.state_dict()
    other.load_state_dict(model.state_dict())
    x = torch.randn(3, 8)
    torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)
