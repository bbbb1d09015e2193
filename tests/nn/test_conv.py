"""``SparseConv2d`` and ``SparseConv1d`` as layers: arguments, errors, state, training."""

from __future__ import annotations

import copy
import io
import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [(2, 1), "same"])
def test_padding_modes(mode, padding):
    layer = wb.SparseConv2d(3, 4, (4, 3), padding=padding, padding_mode=mode, connectivity=0.5, dtype=torch.float64)
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64, requires_grad=True)
    y, expected = layer(x), layer.dense_twin()(x)
    torch.testing.assert_close(y, expected)
    mine, theirs = (torch.autograd.grad(out.square().sum(), x)[0] for out in (y, expected))
    torch.testing.assert_close(mine, theirs)
    one = wb.SparseConv1d(3, 4, 4, padding=2, padding_mode=mode, connectivity=0.5, dtype=torch.float64)
    torch.testing.assert_close(one(x[:, :, 0]), one.dense_twin()(x[:, :, 0]))


@pytest.mark.usefixtures("implementation")
def test_without_a_batch():
    layer = wb.SparseConv2d(3, 4, 3, connectivity=0.5)
    x = torch.randn(3, 6, 7)
    assert layer(x).shape == (4, 4, 5)
    torch.testing.assert_close(layer(x), layer.dense_twin()(x))
    one = wb.SparseConv1d(3, 4, 3, connectivity=0.5)
    torch.testing.assert_close(one(x[:, 0]), one.dense_twin()(x[:, 0]))


def test_arguments_are_those_of_torch():
    layer = wb.SparseConv2d(4, 6, 3, stride=(2, 1), padding=1, dilation=2, groups=2, connectivity=0.5)
    twin = layer.dense_twin()
    for name in ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"):
        assert getattr(layer, name) == getattr(twin, name)
    assert layer.dense_weight().shape == twin.weight.shape == (6, 2, 3, 3)
    assert repr(layer).startswith(
        "SparseConv2d(\n  4, 6, kernel_size=(3, 3), stride=(2, 1), padding=(1, 1), dilation=(2, 2), groups=2, bias=True, "
        "active=54 (50 %)"
    )
    one = wb.SparseConv1d(4, 6, 3, padding="same", bias=False, budget=7)
    twin = one.dense_twin()
    assert (one.kernel_size, one.stride, one.padding) == (twin.kernel_size, twin.stride, twin.padding)
    assert one.dense_weight().shape == twin.weight.shape == (6, 4, 3)
    assert twin.bias is None
    assert int((one.dense_weight() != 0).sum()) == one.active == 7


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"groups": 3}, r"in_channels \(=4\) must be a multiple of groups \(=3\)"),
        ({"groups": 4}, r"out_channels \(=6\) must be a multiple of groups \(=4\)"),
        ({"groups": 0}, r"groups \(=0\) must be >= 1"),
        ({"kernel_size": 0}, r"kernel_size \(=0\) must be 2 whole numbers >= 1"),
        ({"kernel_size": (3, 3, 3)}, r"kernel_size \(=\(3, 3, 3\)\)"),
        ({"stride": (1, 0)}, r"stride \(=\(1, 0\)\)"),
        ({"padding": -1}, r"padding \(=-1\) must be 2 whole numbers >= 0"),
        ({"padding": "some"}, r"padding \(='some'\) must be numbers, 'same' or 'valid'"),
        ({"padding": "same", "stride": 2}, r"stride \(=2\) must be 1"),
        ({"padding_mode": "ones"}, r"padding_mode \(='ones'\)"),
        ({"connectivity": 1.7}, r"connectivity \(=1.7\) must be in \(0, 1\]"),
        ({"budget": 3}, "exactly one of"),
    ],
)
def test_wrong_arguments_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        wb.SparseConv2d(4, 6, **{"kernel_size": 3, "connectivity": 0.5, **arguments})


def test_a_layer_of_another_shape_is_refused():
    wiring = wb.SparseLinear(36, 6, budget=5).wiring
    wb.SparseConv2d(4, 6, 3, wiring=wiring)
    with pytest.raises(ValueError, match=r"layer 0 of the wiring \(=6 × 36\) must be .* \(=6 × 100\)"):
        wb.SparseConv2d(4, 6, 5, wiring=wiring)


@pytest.mark.usefixtures("implementation")
def test_wrong_inputs_are_refused():
    layer = wb.SparseConv2d(4, 6, 3, budget=5)
    with pytest.raises(ValueError, match=r"channels of the input \(=3\) must be in_channels \(=4\)"):
        layer(torch.ones(2, 3, 8, 8))
    with pytest.raises(ValueError, match="must have 4 dimensions, or 3 without a batch"):
        layer(torch.ones(8, 8))
    with pytest.raises(ValueError, match="dtype"):
        layer(torch.ones(2, 4, 8, 8, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"padded input \(=2 along axis -1\) must be at least .* kernel \(=3"):
        layer(torch.ones(2, 4, 8, 2))
    with pytest.raises(ValueError, match="must have 3 dimensions"):
        wb.SparseConv1d(4, 6, 3, budget=5)(torch.ones(2, 4, 8, 8))


def test_second_derivatives_are_refused():
    layer = wb.SparseConv2d(2, 2, 3, budget=5)
    y = layer(torch.ones(1, 2, 4, 4, requires_grad=True)).square().sum()
    with pytest.raises(RuntimeError, match="SparseConv2d has no second derivative"):
        torch.autograd.grad(y, layer.wiring.theta, create_graph=True)


def test_autocast_computes_in_the_precision_of_the_layer_and_answers_in_its_own():
    layer = wb.SparseConv2d(2, 3, 3, connectivity=0.5)
    x = torch.randn(2, 2, 5, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x.bfloat16())
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y, layer(x.bfloat16().float()).bfloat16())


class Net(nn.Module):
    """Two sparse convolutions of one budget, a third with its own, and a sparse head."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [wb.nn.conv.LayerShape("first", 8, 9), wb.nn.conv.LayerShape("second", 8, 72)]
        shared = wb.Wiring(shapes, [30, 150], seed=1)
        self.first = wb.SparseConv2d(1, 8, 3, padding=1, wiring=shared, layer_id=0, owner=True)
        self.second = wb.SparseConv2d(8, 8, 3, stride=2, padding=1, wiring=shared, layer_id=1, owner=False)
        self.third = wb.SparseConv2d(8, 8, 3, groups=2, connectivity=0.5, seed=2)
        self.head = wb.SparseLinear(8, 2, connectivity=0.9, seed=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.third(self.second(self.first(x).relu()).relu()).relu()
        return self.head(x.mean((2, 3)))


def task(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Upright or lying bars in noise: a matter of small neighbourhoods."""
    generator = torch.Generator().manual_seed(5)
    y = torch.randint(2, (count,), generator=generator)
    x = 0.3 * torch.randn(count, 1, 10, 10, generator=generator)
    bars = torch.zeros(10)
    bars[::3] = 1.0
    x[y == 0] += bars.view(1, 1, 10, 1)
    x[y == 1] += bars.view(1, 1, 1, 10)
    return x, y


@pytest.mark.usefixtures("implementation")
def test_training_keeps_the_budget_and_learns():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rewiring = wb.DeepR(model, optimizer, l1=1e-3, temperature=1e-7)
    x, y = task()
    before = [wiring.positions().clone() for wiring in wb.wirings(model)]
    budgets = [wiring.budget for wiring in wb.wirings(model)]
    assert len(budgets) == 3
    losses = []
    for _ in range(60):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        info = rewiring.step()
        rewiring.zero_grad()
        losses.append(loss.item())
        assert info.active == info.budget == sum(budgets)
        for wiring, budget in zip(wb.wirings(model), budgets, strict=True):
            wiring.check()
            assert wiring.active == budget
    assert any(not torch.equal(a, w.positions()) for a, w in zip(before, wb.wirings(model), strict=True))
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.usefixtures("implementation")
def test_copies_and_files(tmp_path):
    model = Net()
    x, _ = task(4)
    expected = model(x)
    expected.sum().backward()
    clone = copy.deepcopy(model)
    assert clone.second.wiring is clone.first.wiring is not model.first.wiring
    assert torch.equal(clone(x), expected)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), expected)
    wb.save(tmp_path / "net.safetensors", model=model)
    other = Net()
    for wiring in wb.wirings(other):
        with torch.no_grad():
            wiring.theta.mul_(2)
    assert not torch.equal(other(x), expected)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), expected)
    third = Net()
    with torch.no_grad():
        third.third.wiring.theta.zero_()
    wb.load(tmp_path / "net.safetensors", model=third)
    assert torch.equal(third(x), expected)


@pytest.mark.usefixtures("implementation")
def test_to_dense():
    model, (x, _) = Net(), task(5)
    with torch.no_grad():
        model.first.bias.normal_()
    dense = wb.to_dense(model)
    assert type(dense.second) is nn.Conv2d
    torch.testing.assert_close(dense(x), model(x))


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("groups", [1, 2])
def test_watched_blocks_are_the_dense_gradient(groups):
    layers = [
        wb.SparseConv2d(4, 6, (3, 2), (2, 1), 1, (1, 2), groups, connectivity=0.3, dtype=torch.float64),
        wb.SparseConv2d(4, 6, 2, padding="same", groups=groups, connectivity=0.3, dtype=torch.float64),
        wb.SparseConv1d(4, 6, 3, 2, groups=groups, connectivity=0.3, dtype=torch.float64),
    ]
    for layer in layers:
        x = torch.randn(5, 4, 8, 9, dtype=torch.float64)
        x = x[:, :, 0] if layer.dimensions == 1 else x
        layer.wiring.watch = {}
        twin = layer.dense_twin()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch on its own padding="same"
            for network in (layer, twin):
                network(x).square().sum().backward()
        (source,) = layer.wiring.watch[0]
        width = twin.weight.grad.flatten(1).shape[1]
        for cuts in ([0, width], [0, 1, 5, width - 1, width], list(range(width + 1))):
            blocks = [source.block(a, b) for a, b in itertools.pairwise(cuts)]
            torch.testing.assert_close(torch.cat(blocks, 1), twin.weight.grad.flatten(1))


def test_no_one_watches_by_default():
    layer = wb.SparseConv2d(2, 3, 3, budget=5)
    layer(torch.ones(1, 2, 4, 4)).sum().backward()
    assert layer.wiring.watch is None
