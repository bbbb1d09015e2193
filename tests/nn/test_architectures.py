"""Whole models as people write them: the forward is that of the dense model, and everything one does to a module works."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb


class Block(nn.Module):
    """Two convolutions and a short cut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.shortcut = nn.Conv2d(n_in, n_out, 1, stride) if stride > 1 or n_in != n_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.rnn = kind(6, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 12)
        layer = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(12, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(words)).mean(1))


class Shared(nn.Module):
    """One module used three times, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.again = self.first
        self.conv = nn.Conv1d(1, 4, 3, padding=1)
        self.head = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.again(torch.tanh(self.first(torch.tanh(self.first(x))))))
        return self.head(self.conv(x.unsqueeze(1)).flatten(1))


def images() -> Tensor:
    return torch.randn(6, 3, 8, 8)


ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "resnet": (ResNet, images),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(6, 7, 6)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(6, 7, 6)),
    "transformer": (Attending, lambda: torch.randint(30, (6, 7))),
    "shared": (Shared, lambda: torch.randn(6, 12)),
}
LABELS = torch.arange(6) % 5


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> tuple[Callable[..., nn.Module], Tensor]:
    make, inputs = ARCHITECTURES[request.param]

    def sparse(**options: Any) -> nn.Module:
        torch.manual_seed(0)
        return wb.sparsify(make(), 0.25, **options)

    torch.manual_seed(1)
    return sparse, inputs()


def gradients(model: nn.Module, x: Tensor) -> None:
    F.cross_entropy(model(x), LABELS).backward()


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_forward_and_gradients_are_those_of_the_dense_twin(architecture, scope: str, implementation: str) -> None:
    make, x = architecture
    model = make(scope=scope).double()
    x = x.double() if x.is_floating_point() else x
    twin = wb.to_dense(model)
    assert not wb.wirings(twin)
    for mode in (True, False):
        model.train(mode)
        twin.train(mode)
        torch.testing.assert_close(model(x), twin(x))
    gradients(model, x)
    gradients(twin, x)
    mine, theirs = dict(model.named_parameters()), dict(twin.named_parameters())
    compared = 0
    for name, parameter in theirs.items():
        if name in mine:  # biases, norms, embeddings
            torch.testing.assert_close(mine[name].grad, parameter.grad)
            compared += 1
    assert compared
    assert all(w.theta.grad is not None and bool(w.theta.grad.any()) for w in wb.wirings(model))


def test_one_budget_spans_all_kinds(architecture) -> None:
    make, _ = architecture
    model = make()
    (wiring,) = wb.wirings(model)
    assert wiring.budget == round(0.25 * sum(layer.possible for layer in wiring.layers))
    wiring.check()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_trains_with_exactly_k_at_every_step(architecture, optimizer: str, scope: str) -> None:
    make, x = architecture
    model = make(scope=scope)
    kinds = {"sgd": (torch.optim.SGD, 0.1), "adam": (torch.optim.Adam, 0.01)}
    kind, lr = kinds[optimizer]
    method = wb.DeepR(model, kind(model.parameters(), lr=lr), l1=1e-3, temperature=1e-6)
    budgets = [w.budget for w in wb.wirings(model)]
    losses, born = [], 0
    for _ in range(25):
        loss = F.cross_entropy(model(x), LABELS)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        info = method.step()
        method.zero_grad()
        assert [w.active for w in wb.wirings(model)] == budgets
        assert info.active == info.budget == sum(budgets)
        losses.append(float(loss.detach()))
        born += info.rewired
    for wiring in wb.wirings(model):
        wiring.check()
    assert losses[-1] < losses[0]
    assert born > 0


def test_copies_files_state_and_dtype(architecture) -> None:
    make, x = architecture
    model = make().eval()
    y = model(x)
    torch.testing.assert_close(copy.deepcopy(model)(x), y, rtol=0, atol=0)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(x), y, rtol=0, atol=0)
    other = make(seed=9).eval()
    assert not torch.equal(other(x), y)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(x), y, rtol=0, atol=0)
    double = copy.deepcopy(model).to(torch.float64)
    wide = x.double() if x.is_floating_point() else x
    torch.testing.assert_close(double(wide).float(), y, rtol=1e-3, atol=1e-4)


def test_checkpoints(architecture, tmp_path) -> None:
    make, x = architecture
    model = make().eval()
    wb.save(tmp_path / "model.safetensors", model=model)
    other = make(seed=5).eval()
    wb.load(tmp_path / "model.safetensors", model=other)
    torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)


def test_gradients_accumulate(architecture) -> None:
    make, x = architecture
    model = make().eval()  # batch statistics would differ between halves
    gradients(model, x)
    whole = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for part in (slice(0, 3), slice(3, 6)):
        (F.cross_entropy(model(x[part]), LABELS[part]) / 2).backward()
    parts = [p.grad for p in model.parameters() if p.grad is not None]
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6)


def test_hooks_see_every_module(architecture) -> None:
    make, x = architecture
    model = make()
    seen: set[str] = set()
    for name, module in model.named_modules():
        if name in {"head", "stem", "rnn", "encoder", "conv"}:
            module.register_forward_hook(lambda module, inputs, output, name=name: seen.add(name))
            module.register_full_backward_hook(lambda module, gin, gout, name=name: seen.add(f"{name} backward"))
    gradients(model, x)
    assert "head" in seen
    assert "head backward" in seen


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_meta(name: str) -> None:
    make, inputs = ARCHITECTURES[name]
    with torch.device("meta"):
        model = make()
    model = wb.sparsify(model, 0.25)
    assert not any(t.is_meta for t in (*model.parameters(), *model.buffers()))
    assert model(inputs()).shape == (6, 5)


def test_excluded_modules_stay_dense(architecture) -> None:
    make, _ = architecture
    model = make(exclude=["head", "stem"])
    assert type(model.head) is nn.Linear
    assert "head" not in {layer.name for w in wb.wirings(model) for layer in w.layers}
