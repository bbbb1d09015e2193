"""``SparseConv3d``, the transposed convolutions and Hugging Face's ``Conv1D`` beside the dense modules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import wirebound as wb
from wirebound.nn.conv_transpose import as_matrix
from wirebound.ops.layout import rows_of, signs_of

both = pytest.mark.usefixtures("implementation")

VOLUMES = [
    {},
    {"stride": 2, "padding": 1, "bias": False},
    {"stride": (1, 2, 3), "padding": (2, 0, 1), "dilation": (2, 1, 1)},
    {"groups": 2, "padding": "same"},
    {"padding": "valid"},
    {"padding": 1, "padding_mode": "circular"},
    {"padding": (1, 0, 1), "padding_mode": "replicate"},
]
TRANSPOSED = [
    {},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"stride": 3, "padding": 0, "bias": False},
    {"stride": 2, "dilation": 2, "groups": 2},
    {"padding": 3, "dilation": 1, "stride": 2},  # takes more off than the kernel adds
]


def check_twin(sparse: nn.Module, x: Tensor, arrange: Any, *extra: Any) -> None:
    """Output and all gradients are those of the dense module, and so is what RigL sees."""
    (wiring,) = wb.wirings(sparse)
    wiring.watch = {}
    twin = wb.to_dense(sparse)
    outcomes, gradients = [], []
    for module in (sparse, twin):
        own = x.clone().requires_grad_()
        y = module(own, *extra)
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
        (y * weights + y.square() / 3).sum().backward()
        outcomes.append(y)
        gradients.append(own.grad)
    torch.testing.assert_close(*outcomes)
    torch.testing.assert_close(*gradients)
    assert outcomes[0].is_contiguous() == outcomes[1].is_contiguous()
    dense = arrange(twin.weight.grad)
    packed_rows = wiring.packed_rows
    columns = torch.repeat_interleave(torch.arange(wiring.layers[0].n_in), wiring.colptr.diff())
    torch.testing.assert_close(wiring.theta.grad, dense[rows_of(packed_rows), columns] * signs_of(packed_rows, dense.dtype))
    if sparse.bias is not None:
        torch.testing.assert_close(sparse.bias.grad, twin.bias.grad)
    (source,) = wiring.watch[0]
    n_in = wiring.layers[0].n_in
    torch.testing.assert_close(torch.cat([source.block(0, 3), source.block(3, n_in)], 1), dense)


@both
@pytest.mark.parametrize("options", VOLUMES, ids=str)
def test_conv3d_is_torchs(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    dense = nn.Conv3d(4, 6, (2, 3, 2), **options).double()
    before = copy.deepcopy(dense)
    sparse = wb.sparsify(dense, 0.3)
    assert type(sparse) is wb.SparseConv3d
    twin = wb.to_dense(sparse)
    assert type(twin) is nn.Conv3d
    for name in ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"):
        assert getattr(twin, name) == getattr(before, name) == getattr(sparse, name)
    assert int((twin.weight != 0).sum()) == wb.wirings(sparse)[0].budget == round(0.3 * before.weight.numel())
    check_twin(sparse, torch.randn(2, 4, 5, 6, 4, dtype=torch.float64), lambda weight: weight.flatten(1))


@both
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("options", TRANSPOSED, ids=str)
def test_transposed_convolutions_are_torchs(dimensions: int, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    kernel = (4, 3, 2)[:dimensions]
    dense = getattr(nn, f"ConvTranspose{dimensions}d")(4, 6, kernel, **options).double()
    kind, possible = type(dense), dense.weight.numel()
    sparse = wb.sparsify(dense, 0.3)
    assert type(sparse) is getattr(wb, f"SparseConvTranspose{dimensions}d")
    assert wb.wirings(sparse)[0].budget == round(0.3 * possible)
    assert type(wb.to_dense(sparse)) is kind
    x = torch.randn(2, 4, *(6, 5, 5)[:dimensions], dtype=torch.float64)
    check_twin(sparse, x, lambda weight: as_matrix(weight, dense.groups))
    torch.testing.assert_close(sparse(x[0]), wb.to_dense(sparse)(x[0]))


@pytest.mark.skipif(not hasattr(wb.SparseLinear, "weight"), reason="sparse layers have no weight here")
@pytest.mark.parametrize("groups", [1, 2])
def test_the_weight_of_a_transposed_convolution_has_its_gradient(groups: int) -> None:
    layer = wb.SparseConvTranspose2d(4, 6, (3, 2), groups=groups, budget=40, dtype=torch.float64)
    factor = torch.randn(4, 6 // groups, 3, 2, dtype=torch.float64)
    torch.testing.assert_close(layer.weight.detach().clone(), layer.dense_weight())
    (layer.weight * factor).sum().backward()
    packed_rows, dense = layer.wiring.packed_rows, as_matrix(factor, groups)
    columns = torch.repeat_interleave(torch.arange(dense.shape[1]), layer.wiring.colptr.diff())
    torch.testing.assert_close(layer.wiring.theta.grad, dense[rows_of(packed_rows), columns] * signs_of(packed_rows, dense.dtype))


@both
def test_a_transposed_convolution_of_a_chosen_size() -> None:
    sparse = wb.SparseConvTranspose2d(3, 4, 3, stride=2, padding=1, budget=30, dtype=torch.float64)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    for size in ([9, 12], [10, 11], [2, 4, 10, 12]):
        check_twin(copy.deepcopy(sparse), x, lambda weight: as_matrix(weight, 1), size)
    with pytest.raises(ValueError, match=r"output_size \(=\[11, 11\]\) must be between \[9, 11\] and \[10, 12\]"):
        sparse(x, [11, 11])


def test_rows_are_output_channels() -> None:
    """So that caps on fan-in and fan-out mean the same as in other layers."""
    limits = wb.Constraints(max_fan_in=2)
    sparse = wb.sparsify(nn.ConvTranspose2d(3, 5, 2), budget=10, constraints=limits)
    assert (wb.wirings(sparse)[0].layers[0].n_out, wb.wirings(sparse)[0].layers[0].n_in) == (5, 12)
    assert ((sparse.dense_weight() != 0).sum((0, 2, 3)) == 2).all()


@pytest.mark.parametrize("groups", [1, 2])
def test_the_largest_weights_of_a_transposed_convolution_are_kept_in_place(groups: int) -> None:
    dense = nn.ConvTranspose2d(4, 6, (3, 2), groups=groups)
    before = dense.weight.detach().clone()
    sparse = wb.sparsify(dense, budget=20, keep="largest")
    threshold = before.abs().flatten().topk(20).values[-1]
    torch.testing.assert_close(sparse.dense_weight(), torch.where(before.abs() >= threshold, before, 0.0))


def test_wrong_arguments_and_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"output_padding \(=2\) must be smaller than stride \(=2\)"):
        wb.SparseConvTranspose1d(2, 2, 3, stride=2, output_padding=2, budget=3)
    with pytest.raises(ValueError, match="must be 'zeros'"):
        wb.SparseConvTranspose1d(2, 2, 3, padding_mode="reflect", budget=3)
    with pytest.raises(ValueError, match=r"kernel_size \(=\(3, 3\)\) must be 3 whole numbers >= 1"):
        wb.SparseConv3d(2, 2, (3, 3), budget=3)
    with pytest.raises(ValueError, match=r"stride \(=2\) must be 1 with padding='same'"):
        wb.SparseConv3d(2, 2, 3, 2, "same", budget=3)
    with pytest.raises(ValueError, match=r"padding \(='some'\)"):
        wb.SparseConv3d(2, 2, 3, padding="some", budget=3)
    layer = wb.SparseConv3d(2, 2, 3, budget=3)
    with pytest.raises(ValueError, match="must have 5 dimensions, or 4 without a batch"):
        layer(torch.ones(3, 3, 3))
    with pytest.raises(ValueError, match=r"channels of the input \(=3\) must be in_channels \(=2\)"):
        layer(torch.ones(1, 3, 3, 3, 3))
    with pytest.raises(ValueError, match=r"padded input \(=2 along axis -3\) must be at least .* kernel \(=3"):
        layer(torch.ones(1, 2, 2, 3, 3))
    with pytest.raises(ValueError, match="dtype"):
        layer(torch.ones(1, 2, 3, 3, 3, dtype=torch.float64))
    assert layer(torch.ones(0, 2, 3, 4, 3)).shape == (0, 2, 1, 2, 1)


class Coder(nn.Module):
    """An autoencoder of volumes."""

    def __init__(self) -> None:
        super().__init__()
        self.packed_rows = nn.Conv3d(1, 4, 3, stride=2, padding=1)
        self.decode = nn.ConvTranspose3d(4, 1, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.packed_rows(x).relu())


METHODS = {
    "deep_r": lambda m, o: wb.DeepR(m, o, l1=1e-2),
    "set": lambda m, o: wb.SET(m, o, every=3),
    "rigl": lambda m, o: wb.RigL(m, o, every=3),
    "fixed": lambda m, o: wb.Fixed(m, o),
}


@pytest.mark.parametrize("method", METHODS)
def test_they_train_within_the_budget(method: str) -> None:
    torch.manual_seed(0)
    model = wb.sparsify(Coder(), 0.4)
    rewiring = METHODS[method](model, torch.optim.Adam(model.parameters(), lr=0.02))
    x = torch.randn(2, 1, 5, 5, 5)
    losses = []
    for _ in range(10):
        loss = (model(x) - x).square().mean()
        loss.backward()
        info = rewiring.step()
        rewiring.zero_grad()
        losses.append(loss.item())
        assert info.active == info.budget
    assert losses[-1] < losses[0]
    wb.wirings(model)[0].check()
    torch.testing.assert_close(copy.deepcopy(model)(x), model(x))
    torch.testing.assert_close(wb.to_dense(model)(x), model(x))


def test_large_layers_stay_small() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv3d(10**4, 10**4, 3), nn.ConvTranspose2d(10**5, 10**5, 2))
    model = wb.sparsify(model, budget=1000)
    assert wb.wirings(model)[0].nbytes < 20_000_000  # dense: 171 GB


def test_conv1d_of_hugging_face() -> None:
    conv1d = pytest.importorskip("transformers.pytorch_utils").Conv1D
    torch.manual_seed(0)
    dense = nn.Sequential(conv1d(6, 4), nn.Tanh(), conv1d(3, 6)).double()
    before = dense[0].weight.detach().clone()
    model = wb.sparsify(dense, budget=20, keep="largest", allocation=[12, 8])
    assert (model[0].nf, model[0].nx) == (6, 4)
    assert [(s.n_out, s.n_in) for s in wb.wirings(model)[0].layers] == [(6, 4), (3, 6)]
    threshold = before.abs().flatten().topk(12).values[-1]
    torch.testing.assert_close(model[0].dense_weight(), torch.where(before.abs() >= threshold, before, 0.0))
    twin = wb.to_dense(model)
    assert type(twin[0]) is conv1d
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    for network in (model, twin):
        network(x).square().sum().backward()
    torch.testing.assert_close(model(x), twin(x))
    (wiring,) = wb.wirings(model)
    gradient = torch.cat([twin[i].weight.grad.reshape(-1) for i in (0, 2)])  # [in, out] is how positions count
    torch.testing.assert_close(wiring.theta.grad, gradient[wiring.positions()] * signs_of(wiring.packed_rows, x.dtype))
    torch.testing.assert_close(model[2].bias.grad, twin[2].bias.grad)


def test_gpt2() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16, num_labels=2, pad_token_id=0,
        bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    model = wb.sparsify(transformers.GPT2ForSequenceClassification(config), 0.2).eval()
    (wiring,) = wb.wirings(model)
    assert wiring.possible == 12 * 16 * 16 + 2 * 16
    words = torch.randint(30, (2, 7))
    torch.testing.assert_close(model(words).logits, wb.to_dense(model)(words).logits)
    rewiring = wb.DeepR(model, torch.optim.Adam(model.parameters()))
    model(words, labels=torch.tensor([0, 1])).loss.backward()
    info = rewiring.step()
    assert info.active == info.budget == wiring.budget
