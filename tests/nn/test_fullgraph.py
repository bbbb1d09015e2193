"""Sparse models in one graph: ``torch.compile(fullgraph=True)``, ``torch.export``, and what comes between two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_kinds_are_kept import MAKERS, Holder
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import wirebound as wb


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Sees(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, stride=2)
        self.answer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.two(F.relu(self.norm(self.one(x)))).mean((2, 3)))


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.LSTM(6, 9, 2, bidirectional=True, batch_first=True)
        self.answer = nn.Linear(18, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.memory(x)[0].mean(1))


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.answer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.layer(x).mean(1))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 4))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (perceptron, (9, 12)),
    "cnn": (Sees, (9, 3, 6, 6)),
    "lstm": (Remembers, (9, 5, 6)),
    "transformer": (Attends, (9, 5, 8)),
}


def train(name: str, backend: Any, make: Callable[..., Any], steps: int) -> tuple[list[float], list[Tensor], int]:
    """Losses, the positions in the end, and how many were born."""
    torch.manual_seed(0)
    model = wb.sparsify(MODELS[name][0](), 0.3, seed=1)
    network = model if backend is None else torch.compile(model, backend=backend, fullgraph=True)
    method = make(model, torch.optim.Adam(model.parameters(), lr=0.02))
    x, y = torch.randn(MODELS[name][1]), torch.arange(9) % 4
    losses, born = [], 0
    for _ in range(steps):
        loss = F.cross_entropy(network(x), y)
        loss.backward()
        info = method.step()
        method.zero_grad()
        assert info.active == info.budget
        born += info.rewired
        losses.append(float(loss.detach()))
    for wiring in wb.wirings(model):
        wiring.check()
    return losses, [wiring.positions() for wiring in wb.wirings(model)], born


def assert_the_same(name: str, backend: Any, steps: int = 12) -> None:
    make = lambda m, o: wb.DeepR(m, o, l1=1e-2)  # noqa: E731
    plain, compiled = (train(name, each, make, steps) for each in (None, backend))
    assert plain[2] == compiled[2] > 0
    torch.testing.assert_close(torch.tensor(plain[0]), torch.tensor(compiled[0]), rtol=1e-3, atol=1e-5)
    for ours, theirs in zip(plain[1], compiled[1], strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_trains_as_the_plain_one_and_is_compiled_once(name: str) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    assert_the_same(name, counter)
    assert counter.frame_count == 1  # positions are data: rewiring makes no new graph


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_inductor(name: str) -> None:
    assert_the_same(name, "inductor")


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
def test_every_kind_compiles_and_exports(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = wb.sparsify(Holder(kind), 0.4), torch.randn(MAKERS[kind][1])
    found = []
    for network in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        y = network(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))])
    torch.testing.assert_close(*found)
    program = torch.export.export(model.eval(), (x,))
    torch.testing.assert_close(program.module()(x.flip(0)), model(x.flip(0)))
    operators = {node.target.namespace for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    assert "wirebound" in operators


def test_an_exported_program_follows_files_and_batches(tmp_path: Any) -> None:
    model = wb.sparsify(perceptron(), 0.3)
    rewiring = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.5), l1=0.02)
    for _ in range(3):
        model(torch.randn(5, 12)).square().sum().backward()
        rewiring.step()
        rewiring.zero_grad()
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(model, (torch.randn(4, 12),), dynamic_shapes=({0: batch},))
    torch.export.save(program, str(tmp_path / "model.pt2"))
    loaded, x = torch.export.load(str(tmp_path / "model.pt2")).module(), torch.randn(7, 12)
    torch.testing.assert_close(loaded(x), model(x))
    weights = sum(p.numel() for p in program.parameters())
    assert weights == sum(p.numel() for p in model.parameters())  # K, nothing dense


def test_batches_of_other_sizes_are_one_more_graph_at_most() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    model = wb.sparsify(Remembers(), 0.3).eval()
    network = torch.compile(model, backend=counter, fullgraph=True)
    for batch in (3, 5, 8, 13):
        x = torch.randn(batch, 4, 6)
        torch.testing.assert_close(network(x), model(x))
    assert counter.frame_count <= 2


def test_lengths_are_part_of_the_graph() -> None:
    layer = wb.SparseGRU(6, 7, connectivity=0.4, batch_first=True, bidirectional=True)
    x, lengths = torch.randn(3, 5, 6), torch.tensor([5, 2, 0])
    network = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(network(x, lengths=lengths), layer(x, lengths=lengths))


def test_rigl_leaves_the_graph_in_the_steps_that_grow() -> None:
    make = lambda m, o: wb.RigL(m, o, every=3)  # noqa: E731
    plain = train("perceptron", None, make, 8)
    torch.manual_seed(0)
    model = wb.sparsify(perceptron(), 0.3, seed=1)
    network = torch.compile(model, backend="aot_eager")
    method = make(model, torch.optim.Adam(model.parameters(), lr=0.02))
    x, y = torch.randn(9, 12), torch.arange(9) % 4
    losses = []
    for _ in range(8):
        loss = F.cross_entropy(network(x), y)
        loss.backward()
        method.step()
        method.zero_grad()
        losses.append(float(loss.detach()))
    torch.testing.assert_close(torch.tensor(plain[0]), torch.tensor(losses), rtol=1e-3, atol=1e-5)
    torch._dynamo.reset()  # or it would use the graphs with a break in them
    strict = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert wb.wirings(model)[0].watch is not None  # the next step grows
    with pytest.raises(torch._dynamo.exc.Unsupported, match="use fullgraph=False"):
        strict(x)


def test_a_theta_below_zero_counts_as_dormant_in_a_graph() -> None:
    layer = wb.SparseLinear(8, 5, budget=20)
    network, x = torch.compile(layer, backend="aot_eager", fullgraph=True), torch.randn(3, 8)
    network(x)
    with torch.no_grad():
        layer.wiring.theta[4] = -0.3
    y = network(x)
    (gradient,) = torch.autograd.grad(y.sum(), layer.wiring.theta)
    assert gradient[4] == 0
    with pytest.warns(RuntimeWarning, match="count as dormant"):
        torch.testing.assert_close(y, layer(x))


def test_functional_call_checkpoint_and_a_layer_used_twice() -> None:
    torch.manual_seed(0)
    model = wb.sparsify(nn.Sequential(nn.Linear(6, 6), nn.Tanh()), 0.5)
    x = torch.randn(4, 6)
    doubled = {name: p.detach() * 2 for name, p in model.named_parameters()}
    held = {**doubled, **dict(model.named_buffers())}
    expected = torch.func.functional_call(wb.to_dense(model), dense_of(model, 2.0), (x,))
    torch.testing.assert_close(torch.func.functional_call(model, held, (x,)), expected)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(checkpoint(self.inner, x, use_reentrant=False))

    found = []
    for network in (Twice(), torch.compile(Twice(), backend="aot_eager", fullgraph=True)):
        y = network(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))])
    torch.testing.assert_close(*found)
    twin = wb.to_dense(model)
    torch.testing.assert_close(found[0][0], twin(twin(x)))


def dense_of(model: nn.Module, factor: float) -> dict[str, Tensor]:
    return {name: p.detach() * factor for name, p in wb.to_dense(model).named_parameters()}


def test_autocast_in_a_graph() -> None:
    model = wb.sparsify(perceptron(), 0.3)
    network, x = torch.compile(model, backend="aot_eager", fullgraph=True), torch.randn(5, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = network(x), model(x)
    assert y.dtype is expected.dtype
    torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)
