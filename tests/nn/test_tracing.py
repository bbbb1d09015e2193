"""Whoever records torch operators gets a network that computes what the model computes, or a sentence."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import wirebound as wb

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Exporting a model to ONNX with a batch_size"),
    pytest.mark.filterwarnings("error::torch.jit.TracerWarning"),
]


class Sees(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2)
        self.two = nn.Conv2d(8, 4, (2, 3), padding="same", padding_mode="circular")
        self.three = nn.Conv1d(4, 3, 5, dilation=2, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        return self.three(torch.relu(self.two(self.one(x))).flatten(2))


class Remembers(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], **options: Any) -> None:
        super().__init__()
        self.memory = kind(6, 7, **options)

    def forward(self, x: Tensor) -> Any:
        return self.memory(x)


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(6, 2, batch_first=True)
        self.answer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, weights = self.attend(x, x, x)
        return self.answer(y), weights


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.answer = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.embed(x))


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.to(self.layer.weight.dtype)) + F.linear(x, self.layer.weight)


def vectors(n: int) -> Tensor:
    return torch.randn(n, 6)


def sequences(n: int) -> Tensor:
    return torch.randn(n, n + 2, 6)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "linear": (lambda: nn.Sequential(nn.Flatten(0, 0), nn.Linear(6, 5), nn.Dropout(), nn.Linear(5, 3)), sequences),
    "stack": (lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3)), vectors),
    "conv": (Sees, lambda n: torch.randn(n, 4, 8, 6)),
    "lstm": (lambda: Remembers(nn.LSTM, batch_first=True, bidirectional=True, num_layers=2), sequences),
    "gru": (lambda: Remembers(nn.GRU, bias=False), sequences),
    "attention": (Attends, sequences),
    "masked": (Embeds, lambda n: torch.randint(0, 20, (n, 4))),
    "weight": (Reads, vectors),
}


def quick(*names: str) -> list[Any]:
    """All models, of which the others are slow."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]


def sparse(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A model, an input to trace it with, and another of another size."""
    torch.manual_seed(0)
    make, data = MODELS[name]
    include = ["embed.weight", nn.Linear] if name == "masked" else None
    model = wb.sparsify(make(), 0.4, include=include).eval()
    model(data(2))  # so that whatever a wiring keeps between passes is there
    return model, data(3), data(5)


def assert_same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(tree_leaves(found), tree_leaves(expected), rtol=1e-4, atol=1e-5)


def rewire(model: nn.Module, x: Tensor) -> None:
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.5), l1=0.05, temperature=1e-3)
    for _ in range(3):
        tree_leaves(model(x))[0].square().sum().backward()
        assert method.step().rewired > 0
        method.zero_grad()


@pytest.mark.parametrize(("name", "grad"), [("stack", True), *((name, False) for name in MODELS)])
def test_jit_trace(name: str, grad: bool) -> None:
    model, x, other = sparse(name)
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(model, x)
    assert_same(traced(other), model(other))
    loss, twin_loss = (tree_leaves(network(other))[0].square().sum() for network in (traced, model))
    parameters = list(model.parameters())
    assert_same(torch.autograd.grad(loss, parameters), torch.autograd.grad(twin_loss, parameters))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    before = model(other)
    rewire(model, x)  # the trace shares the tensors of the model, and follows connections wherever they go
    assert_same(traced(other), model(other))
    assert_same(torch.jit.load(file)(other), before)


@pytest.mark.parametrize("name", MODELS)
def test_the_old_onnx_exporter(name: str) -> None:
    model, x, other = sparse(name)
    file = io.BytesIO()
    axes = {i: f"n{i}" for i in range(2 if MODELS[name][1] is sequences else 1)}
    torch.onnx.export(model, (x,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": axes})
    found = onnxruntime.InferenceSession(file.getvalue()).run(None, {"x": other.numpy()})
    assert_same([torch.from_numpy(each) for each in found], model(other))


@pytest.mark.parametrize("name", [*MODELS, "transformer"])
def test_fx_takes_a_sparse_layer_as_one_node(name: str) -> None:
    if name == "transformer":
        layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True, dropout=0.0)
        model = nn.Sequential(wb.sparsify(layer, 0.4), nn.ReLU()).eval()
        x, other = sequences(3), sequences(5)
    else:
        model, x, other = sparse(name)
    graph = torch.fx.symbolic_trace(model)
    assert_same(graph(other), model(other))
    assert {id(p) for p in graph.parameters()} == {id(p) for p in model.parameters()}
    rewire(model, x)
    if name == "weight":  # the graph holds what was read while it was made
        with pytest.raises(RuntimeError, match="read it again"):
            graph(other)
    else:
        assert_same(graph(other), model(other))


@pytest.mark.parametrize("name", quick("stack", "conv", "masked", "weight"))
def test_make_fx_and_fake_tensors(name: str) -> None:
    model, x, _ = sparse(name)
    expected = [t.shape for t in tree_leaves(model(x))]
    graph = make_fx(model)(x)
    assert_same(graph(x.flip(0)), model(x.flip(0)))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = mode.from_tensor(x)
    with mode:
        inside = model(fake)
    for outputs in (inside, model(fake)):  # in the mode, and out of it
        assert [t.shape for t in tree_leaves(outputs)] == expected
    held = {key: mode.from_tensor(t) for key, t in (*model.named_parameters(), *model.named_buffers())}
    assert [t.shape for t in tree_leaves(torch.func.functional_call(model, held, (fake,)))] == expected


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "strict"])
@pytest.mark.parametrize("name", quick("stack"))
def test_torch_export(name: str, strict: bool) -> None:
    model, x, _ = sparse(name)
    program = torch.export.export(model, (x,), strict=strict)
    assert_same(program.module()(x.flip(0)), model(x.flip(0)))
    torch._dynamo.reset()


def test_a_wiring_is_not_made_of_fake_tensors() -> None:
    with FakeTensorMode(), pytest.raises(RuntimeError, match="cannot be made under FakeTensorMode"):
        wb.SparseLinear(4, 3, connectivity=0.5)


def test_autocast_is_recorded_in_the_precision_of_the_parameters() -> None:
    layer, x = wb.SparseLinear(64, 5, connectivity=0.5), torch.randn(3, 64).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph, expected = make_fx(layer)(x), layer(x)
    assert_same(graph(x), expected)


def test_sequences_of_different_lengths_are_not_traced() -> None:
    class Lengths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory, self.lengths = wb.SparseGRU(6, 7, connectivity=0.4), torch.tensor([1, 2, 2])

        def forward(self, x: Tensor) -> Any:
            return self.memory(x, lengths=self.lengths)

    with pytest.raises(RuntimeError, match=r"SparseGRU with lengths= or mask= cannot be traced.*wb\.to_dense"):
        torch.jit.trace(Lengths(), torch.randn(2, 3, 6))


@pytest.mark.parametrize("name", MODELS)
def test_jit_script_says_what_to_do(name: str) -> None:
    model, _, other = sparse(name)
    with pytest.raises(RuntimeError, match=r"torch\.jit\.script cannot compile .* script wb\.to_dense\(model\)"):
        torch.jit.script(model)
    if name == "stack":
        assert_same(torch.jit.script(wb.to_dense(model))(other), model(other))


def test_tensorboard_draws_the_graph(tmp_path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    model, x, _ = sparse("conv")
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_graph(model, x)
    assert any(b"aten::_convolution" in path.read_bytes() for path in tmp_path.iterdir())
