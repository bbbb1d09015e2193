"""What is no chain of known layers is refused in one sentence that names the layer or operation, and the way out."""

import pytest
import torch
import torch.nn.functional as F
from chain_models import TwoLayers
from torch import nn

import wirebound as wb
from wirebound.export import ExportError, read_network, to_c, to_nir, to_onnx, to_pynn


class _Model(nn.Module):
    """Two layers, and a forward that is given."""

    def __init__(self, forward):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))
        self.norm = nn.LayerNorm(8)
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


FORWARDS = {
    "residual": (lambda m, x: m.b(torch.relu(m.a(x)) + x), r"operation 'add' must take the result of the one before it \(relu\)"),
    "branch": (lambda m, x: m.a(x) * torch.sigmoid(m.b(x)), r"module 'b' \(=SparseLinear\) must take the result"),
    "parameter": (lambda m, x: m.b(m.a(x) * m.scale), "operation 'scale' must take"),
    "unknown": (lambda m, x: m.b(torch.cumsum(m.a(x), 1)), "operation 'cumsum' in forward\\(\\) is not known here"),
    "constant": (lambda m, x: m.b(m.a(x) / 255), "operation 'truediv' in forward\\(\\) is not known here"),
    "layer-norm": (lambda m, x: m.b(m.norm(m.a(x))), r"module 'norm' \(=LayerNorm\) is not a layer that can be written"),
    "decision": (lambda m, x: m.a(x) if x.sum() > 0 else m.b(x), "torch.fx cannot follow forward\\(\\) of _Model"),
    "two-outputs": (lambda m, x: (m.a(x), x), "forward\\(\\) must return what its last operation \\(a\\) gives"),
    "always-dropped": (lambda m, x: m.b(F.dropout(m.a(x), 0.5)), "operation 'dropout' is always on"),
    "twice-activated": (lambda m, x: m.b(torch.tanh(torch.relu(m.a(x)))), "'tanh' must follow a layer, and no other activation"),
    "first-activated": (lambda m, x: m.b(torch.relu(x)), "'relu' must follow a layer"),
    "reshaped": (lambda m, x: m.b(m.a(x).view(4, -1, 8)), "'view' must keep the batch"),
    "mean": (lambda m, x: m.b(m.a(x).mean(1, keepdim=True)), "operation 'mean' must be that of each channel"),
    "softmax-of-examples": (lambda m, x: m.b(m.a(x)).softmax(0), r"operation 'softmax' is not a layer that can be written"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARDS)
def test_user_classes(name):
    forward, message = FORWARDS[name]
    model = wb.sparsify(_Model(forward), connectivity=0.5)
    with pytest.raises(ExportError, match=message) as caught:
        read_network(model)
    assert "to_onnx(model, path, example=batch)" in str(caught.value)
    assert "wb.to_dense(model)" in str(caught.value)
    assert model.training


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")], "padding_mode='reflect'"),
        ([nn.Conv2d(1, 2, 3), nn.Linear(2, 2)], r"module '1' \(=Linear\) takes inputs of shape \(features\), it is given .*: put nn.Flatten"),
        ([nn.Conv2d(1, 2, 3), nn.Conv1d(2, 2, 3)], "it is given \\(channels, height, width\\)"),
        ([nn.Conv2d(1, 2, 3), nn.BatchNorm1d(2)], "it is given \\(channels, height, width\\)"),
        ([nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, ceil_mode=True)], "ceil_mode=True"),
        ([nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, return_indices=True)], "return_indices=True"),
        ([nn.Conv2d(1, 2, 3), nn.AvgPool2d(2, divisor_override=3)], "divisor_override"),
        ([nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d((2, 3))], "output_size 1"),
        ([nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)], "has no running statistics"),
        ([nn.Linear(4, 4), nn.Linear(5, 4)], "a layer with 4 outputs is followed by '1' with 5 inputs"),
        ([nn.Conv2d(1, 2, 3), nn.Conv2d(3, 2, 3)], "a layer with 2 outputs is followed by '1' with 3 inputs"),
        ([nn.Conv2d(1, 2, 3), nn.Softmax(1)], r"module '1' \(=Softmax\) must follow a linear layer"),
        ([nn.Linear(4, 4), nn.Flatten(0)], "must flatten everything but the batch"),
        ([nn.Conv2d(1, 2, 3), nn.Unflatten(1, (1, 2))], "can only come first"),
        ([nn.Identity()], "the model has no layer with connections"),
        ([nn.LSTM(4, 4)], r"module '0' \(=LSTM\) is not a layer"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(type(layer).__name__ for layer in value),
)
def test_modules(layers, message):
    with pytest.raises(ExportError, match=message):
        read_network(nn.Sequential(*layers))


def test_hooks_change_what_is_computed_and_cannot_be_written(tmp_path):
    model = TwoLayers()
    handle = model.a.register_forward_hook(lambda module, inputs, output: output * 2)
    with pytest.raises(ExportError, match=r"module 'a' \(=Linear\) has forward hooks"):
        to_c(model, tmp_path / "n.h")
    handle.remove()
    assert len(read_network(model).layers) == 2


def test_a_shape_that_does_not_fit(tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 2, 5), nn.Flatten(), nn.Linear(32, 2))
    for shape, message in (
        ((1, 9, 9), "layer '2' has 32 inputs, it is given 50"),
        ((1, 3, 9), "the window of layer '0' must fit into its input"),
        ((3, 8, 8), "layer '0' has 1 input channels, it is given 3"),
        ((8, 8), "takes inputs of shape \\(channels, height, width\\)"),
        ((1, 0, 8), "must be numbers >= 1"),
    ):
        with pytest.raises(ExportError, match=message):
            to_c(model, tmp_path / "n.h", input_shape=shape)


def test_what_single_formats_cannot_say(tmp_path):
    pooled = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2))
    with pytest.raises(ExportError, match=r"NIR has no node for the largest of a window, which layer '1' has: use nn\.AvgPool2d"):
        to_nir(pooled, tmp_path / "x", input_shape=(1, 8, 8))
    with pytest.raises(ExportError, match="PyNN has no projection for pooling, which layer '1' does"):
        to_pynn(pooled, tmp_path / "x", input_shape=(1, 8, 8))
    with pytest.raises(ExportError, match="NIR has no node for gelu, which layer '0' has: use ReLU"):
        to_nir(nn.Sequential(nn.Linear(3, 3), nn.GELU()), tmp_path / "x")
    with pytest.raises(ExportError, match="NIR has no node for a kernel of 3 × 2"):
        to_nir(nn.Sequential(nn.Conv2d(1, 2, (3, 2))), tmp_path / "x", input_shape=(1, 8, 8))
    with pytest.raises(ExportError, match="softmax needs a last layer that is linear"):
        to_onnx(pooled, tmp_path / "x", softmax=True)
    assert list(tmp_path.iterdir()) == []
