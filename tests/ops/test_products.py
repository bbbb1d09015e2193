"""The reference's two ways through a layer: torch's products of CSR tensors, and gathering and scattering."""

import gc

import pytest
import torch

import wirebound as wb
from wirebound import ops
from wirebound.ops.faults import WiringError
from wirebound.ops.reference import products


@pytest.fixture(autouse=True)
def _reference():
    with ops.use("reference"):
        yield


def _outcome(layer, x):
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(torch.sin(torch.arange(y.numel(), dtype=y.dtype)).view_as(y))
    theta = layer.wiring.theta
    gradient, theta.grad = theta.grad, None
    return y.detach(), x.grad, gradient


def _gathered(layer, x):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_torch_has_products", lambda dtype: False)
        return _outcome(layer, x)


def test_this_build_of_torch_has_them():
    assert products._torch_has_products(torch.float32)
    assert products._torch_has_products(torch.float64)
    assert not products._torch_has_products(torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda **o: wb.SparseLinear(30, 20, connectivity=0.2, **o), (7, 30)),
        (lambda **o: wb.SparseLinear(30, 20, connectivity=0.2, bias=False, **o), (1, 30)),
        (lambda **o: wb.SparseLinear(5000, 9, connectivity=0.01, **o), (100, 5000)),  # more than one panel
        (lambda **o: wb.SparseConv2d(3, 8, (3, 2), stride=(2, 1), dilation=(1, 2), padding=1, connectivity=0.3, **o), (5, 3, 9, 11)),
        (lambda **o: wb.SparseConv2d(4, 8, 3, groups=2, connectivity=0.3, **o), (5, 4, 9, 11)),
        (lambda **o: wb.SparseConv2d(16, 8, 5, padding=2, connectivity=0.1, **o), (9, 16, 20, 20)),  # images in parts
    ],
)
def test_both_ways_agree(layer, shape, dtype):
    layer = layer(seed=0, dtype=dtype)
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    tolerance = 1e-3 if dtype == torch.float32 else 1e-11
    for mine, other in zip(_outcome(layer, x), _gathered(layer, x), strict=True):
        assert torch.allclose(mine, other, rtol=tolerance, atol=tolerance)


def test_the_order_of_rows_is_found_once_for_each_wiring(monkeypatch):
    found = []
    new = products._new_pattern
    monkeypatch.setattr(products, "_new_pattern", lambda *a: found.append(1) or new(*a))
    model = torch.nn.Sequential(wb.SparseLinear(12, 10, connectivity=0.3, seed=0), wb.SparseLinear(10, 4, connectivity=0.3, seed=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(6, 12)
    for _ in range(3):
        model(x).sum().backward()
    assert len(found) == 2
    rewiring = wb.DeepR(model, optimizer, l1=0.5)  # enough that some die in every step
    optimizer.step()
    assert rewiring.info.rewired
    optimizer.zero_grad()
    for mine, other in zip(_outcome(model[0], x), _gathered(model[0], x), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)


def test_positions_that_are_written_where_no_version_counts_are_noticed():
    layer, x = wb.SparseLinear(6, 9, budget=6, bias=False, seed=0), torch.randn(3, 6)
    before = layer(x)
    rows = layer.wiring.packed_rows.data
    rows ^= -(1 << 31)  # all signs
    assert torch.equal(layer(x), -before)
    rows &= -(1 << 31)
    rows += 9  # a row that is not there
    with pytest.raises(WiringError, match="overwritten"):
        layer(x)


def test_nothing_stays_when_a_wiring_is_gone():
    gc.collect()
    before = len(products._patterns)
    layer = wb.SparseLinear(6, 9, budget=6, seed=0)
    layer(torch.randn(3, 6)).sum().backward()
    assert len(products._patterns) == before + 1
    del layer
    gc.collect()
    assert len(products._patterns) == before


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_goes_only_where_connections_go(bad):
    layer = wb.SparseLinear(40, 30, connectivity=0.1, seed=0)
    x = torch.randn(33, 40)
    x[5, 7] = bad
    y = layer(x).detach()
    reached = layer.dense_weight()[:, 7] != 0
    assert 0 < int(reached.sum()) < 30
    assert torch.equal(~torch.isfinite(y[5]), reached)
    assert torch.isfinite(y[torch.arange(33) != 5]).all()


def test_same_bits_in_every_run():
    layer, x = wb.SparseLinear(200, 100, connectivity=0.1, seed=0), torch.randn(77, 200)
    first = _outcome(layer, x)
    torch.full((1 << 20,), float("nan"))  # what freed memory holds does not matter
    for mine, other in zip(_outcome(layer, x), first, strict=True):
        assert torch.equal(mine, other)
