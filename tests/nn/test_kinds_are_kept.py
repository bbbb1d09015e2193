"""Every kind of layer survives copies, files, state dicts and checkpoints, and the way to dense and back."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import wirebound as wb
from wirebound.nn.candidates import KINDS

MAKERS: dict[type[nn.Module], tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    nn.Linear: (lambda: nn.Linear(6, 5), (2, 6)),
    nn.Conv1d: (lambda: nn.Conv1d(4, 6, 3, groups=2), (2, 4, 7)),
    nn.Conv2d: (lambda: nn.Conv2d(4, 6, 3, padding=1), (2, 4, 5, 5)),
    nn.Conv3d: (lambda: nn.Conv3d(4, 6, 2, stride=2), (2, 4, 4, 4, 4)),
    nn.ConvTranspose1d: (lambda: nn.ConvTranspose1d(4, 6, 3, 2), (2, 4, 5)),
    nn.ConvTranspose2d: (lambda: nn.ConvTranspose2d(4, 6, 3, 2, groups=2), (2, 4, 5, 5)),
    nn.ConvTranspose3d: (lambda: nn.ConvTranspose3d(4, 6, 2, bias=False), (2, 4, 3, 3, 3)),
    nn.RNN: (lambda: nn.RNN(6, 5, 2, "relu", batch_first=True), (2, 3, 6)),
    nn.LSTM: (lambda: nn.LSTM(6, 5, bidirectional=True), (3, 2, 6)),
    nn.GRU: (lambda: nn.GRU(6, 5, bias=False), (3, 2, 6)),
    nn.RNNCell: (lambda: nn.RNNCell(6, 5, nonlinearity="relu"), (2, 6)),
    nn.LSTMCell: (lambda: nn.LSTMCell(6, 5), (2, 6)),
    nn.GRUCell: (lambda: nn.GRUCell(6, 5, bias=False), (2, 6)),
    nn.MultiheadAttention: (lambda: nn.MultiheadAttention(6, 2), (3, 2, 6)),
}
every_kind = pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)


class Holder(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer = MAKERS[kind][0]()

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x, x, x) if hasattr(self.layer, "out_proj") else self.layer(x)
        return y[0] if isinstance(y, tuple) else y


def test_no_kind_is_forgotten() -> None:
    assert set(MAKERS) == set(KINDS)


@every_kind
def test_copies_and_files(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = wb.sparsify(Holder(kind), 0.4)
    x = torch.randn(MAKERS[kind][1])
    method = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.02), l1=1e-3)
    model(x).square().sum().backward()
    method.step()
    expected = model(x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    stated, loaded = (wb.sparsify(Holder(kind), 0.4, seed=3) for _ in range(2))
    stated.load_state_dict(model.state_dict())
    wb.save(tmp_path / "it.safetensors", model=model, method=method)
    again = wb.DeepR(loaded, torch.optim.Adam(loaded.parameters(), lr=0.02), l1=1e-3)
    wb.load(tmp_path / "it.safetensors", model=loaded, method=again)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False), stated, loaded):
        assert torch.equal(other(x), expected)
        (wiring,) = wb.wirings(other)
        assert wiring is not wb.wirings(model)[0]
        wiring.check()


@every_kind
def test_dense_and_back_with_all_weights_is_the_same_network(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    dense = Holder(kind).double()
    x = torch.randn(MAKERS[kind][1], dtype=torch.float64)
    expected = dense(x)
    model = wb.sparsify(dense, 1.0, keep="largest")
    torch.testing.assert_close(model(x), expected)
    back = wb.to_dense(model)
    assert type(back.layer) is kind
    torch.testing.assert_close(back(x), expected)
    assert set(back.state_dict()) == set(Holder(kind).state_dict())
