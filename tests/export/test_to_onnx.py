"""The ONNX file, as onnxruntime runs it."""

import numpy as np
import pytest
import torch
from export_helpers import inputs_for, outputs_of, small_network
from torch import nn

import wirebound as wb
from wirebound.export import ExportError, to_onnx
from wirebound_lab.run.export_source import open_source

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def _run(path, x):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_onnxruntime_computes_what_torch_does(network, dense, tmp_path):
    x = inputs_for(network)
    to_onnx(network, tmp_path / "n.onnx", dense=dense)
    np.testing.assert_allclose(_run(tmp_path / "n.onnx", x), outputs_of(network, x), rtol=2e-5, atol=3e-6)


def test_a_sparse_file_is_as_large_as_its_connections(tmp_path):
    model = small_network("wide")
    path = to_onnx(model, tmp_path / "n.onnx")
    assert path.stat().st_size < 3000  # 40 connections of 1.4 million
    graph = onnx.load(path).graph
    assert sum(item.values.dims[0] for item in graph.sparse_initializer) == 40


def test_softmax(tmp_path):
    model = small_network("deep-r")
    x = inputs_for(model)
    to_onnx(model, tmp_path / "n.onnx", softmax=True)
    wanted = torch.from_numpy(outputs_of(model, x)).softmax(1).numpy()
    np.testing.assert_allclose(_run(tmp_path / "n.onnx", x), wanted, rtol=1e-5, atol=1e-6)


def test_mnist(mnist_run, tmp_path):
    model = open_source(mnist_run).model
    to_onnx(model, tmp_path / "n.onnx")
    x = torch.rand(200, 784).numpy()
    np.testing.assert_allclose(_run(tmp_path / "n.onnx", x), outputs_of(model, x), rtol=1e-4, atol=1e-4)


class _Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 7, batch_first=True)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (_Recurrent, (6, 5)),
        (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)), (6,)),
    ],
    ids=["lstm", "norm"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_other_models_go_through_torch(model, shape, tmp_path):
    torch.manual_seed(0)
    sparse = wb.sparsify(model(), connectivity=0.5)
    with pytest.raises(ExportError, match="example=batch"):
        to_onnx(sparse, tmp_path / "n.onnx")
    to_onnx(sparse, tmp_path / "n.onnx", example=torch.randn(1, *shape))
    x = torch.randn(5, *shape).numpy()
    np.testing.assert_allclose(_run(tmp_path / "n.onnx", x), outputs_of(sparse, x), rtol=1e-4, atol=1e-5)


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ExportError, match=r'pip install "wirebound\[onnx\]"'):
        to_onnx(small_network("deep-r"), tmp_path / "n.onnx")
