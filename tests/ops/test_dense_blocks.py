"""Layers most of whose positions are active, which are multiplied by dense blocks: the same answers, faults and bits."""

import pytest
import torch
import torch.nn.functional as F

import wirebound as wb
from wirebound import ops
from wirebound.ops.native import blocks, choice

SHAPES = [(1, 1), (12, 33), (65, 300), (300, 70), (13, 1030)]


@pytest.fixture(params=["by choice", "blocks"], autouse=True)
def always(request, monkeypatch):
    """Once with the density that decides, once with blocks at any density."""
    if request.param == "blocks":
        for name in ("LINEAR_DENSITY", "CONV_DENSITY"):
            monkeypatch.setattr(choice, name, 0.0)


def _gradients(layer, x, upstream):
    layer.zero_grad()
    mine = x.clone().requires_grad_()
    y = layer(mine)
    y.backward(upstream)
    return [y.detach(), mine.grad, layer.wiring.theta.grad.clone(), *([] if layer.bias is None else [layer.bias.grad.clone()])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 10, 33, 300])
@pytest.mark.parametrize(("n_in", "n_out"), SHAPES)
@pytest.mark.parametrize("density", [0.3, 0.9, 1.0])
def test_linear_equals_dense_autograd(implementation, n_in, n_out, density, batch, dtype):
    budget = max(1, round(density * n_in * n_out))
    layer = wb.SparseLinear(n_in, n_out, budget=budget, seed=batch, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, n_in, dtype=dtype, generator=generator)
    upstream = torch.randn(batch, n_out, dtype=dtype, generator=generator)
    weight, theirs = layer.dense_weight().requires_grad_(), x.clone().requires_grad_()
    expected = F.linear(theirs, weight, layer.bias.detach())
    expected.backward(upstream)
    y, dx, dtheta, dbias = _gradients(layer, x, upstream)
    packed_rows, colptr = layer.wiring.packed_rows, layer.wiring.colptr
    columns = torch.repeat_interleave(torch.arange(n_in), colptr.diff())
    signs = torch.where(packed_rows < 0, -1.0, 1.0).to(dtype)
    at_active = weight.grad[(packed_rows & 0x7FFFFFFF).long(), columns] * signs
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype is torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    for ours, other in ((y, expected), (dx, theirs.grad), (dtheta, at_active), (dbias, upstream.sum(0))):
        torch.testing.assert_close(ours, other, **tolerance)


@pytest.mark.parametrize("batch", [10, 64])
def test_same_bits_for_every_number_of_threads(implementation, threads, batch):
    layer = wb.SparseLinear(500, 390, connectivity=0.9, seed=2)
    generator = torch.Generator().manual_seed(1)
    x, upstream = torch.randn(batch, 500, generator=generator), torch.randn(batch, 390, generator=generator)
    outcomes = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        outcomes.append(_gradients(layer, x, upstream))
    for other in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcomes[0], other, strict=True))


def test_strides_and_what_is_needed(implementation):
    layer = wb.SparseLinear(40, 30, connectivity=0.9, dtype=torch.float64)
    theta, index = layer.wiring.theta.detach(), layer.wiring.layer_index(0)
    wide = torch.randn(6, 80, dtype=torch.float64)
    backend, dense = ops.backend_of(theta), layer.dense_weight()
    for x in (wide[:, :40], wide[:, ::2], wide.t()[:40].contiguous().t()):
        y = backend.linear_forward(x, theta, index, 30, None)
        torch.testing.assert_close(y, x @ dense.t())
        both = backend.linear_backward(x, y, theta, index, True, True)
        assert backend.linear_backward(x, y, theta, index, False, False) == (None, None)
        for number, need in enumerate(((True, False), (False, True))):
            alone = backend.linear_backward(x, y, theta, index, *need)
            assert torch.equal(alone[number], both[number])
            assert alone[1 - number] is None


def test_dormant_connections_count_as_zero(implementation):
    layer = wb.SparseLinear(50, 40, connectivity=0.9, seed=1)
    with torch.no_grad():
        layer.wiring.theta[::7] = -0.5
    x = torch.randn(5, 50)
    torch.testing.assert_close(layer(x), F.linear(x, layer.dense_weight(), layer.bias), rtol=1e-4, atol=1e-5)


def test_overwritten_positions_are_refused(implementation):
    layer = wb.SparseLinear(50, 40, connectivity=0.9, seed=1)
    index, theta = layer.wiring.layer_index(0), layer.wiring.theta.detach()
    backend = ops.backend_of(theta)
    if backend.name != "native":
        pytest.skip("the reference has no addresses")
    x, dy = torch.randn(5, 50), torch.randn(5, 40)
    for at, value in ((7, 40), (7, 2**31 - 1), (8, 0), (len(theta) - 1, 41)):
        bad = index._replace(packed_rows=index.packed_rows.clone())
        bad.packed_rows[at] = value
        with pytest.raises(ops.faults.WiringError, match="overwritten"):
            backend.linear_forward(x, theta, bad, 40, None)
        with pytest.raises(ops.faults.WiringError, match="overwritten"):
            backend.linear_backward(x, dy, theta, bad, True, True)
    bad = index._replace(colptr=index.colptr.clone())
    bad.colptr[3] = 10**9
    with pytest.raises(ops.faults.WiringError, match="overwritten"):
        backend.linear_forward(x, theta, bad, 40, None)


CONVS = [
    {"kernel_size": 3},
    {"kernel_size": (2, 3), "stride": (2, 1), "padding": (1, 0), "bias": False},
    {"kernel_size": 4, "padding": "same"},
    {"kernel_size": 3, "dilation": 2, "padding": 2, "groups": 2},
    {"kernel_size": 1, "groups": 4},
]


@pytest.mark.parametrize(("block_bytes", "part_images"), [(1 << 20, 16), (4000, 1)])
@pytest.mark.parametrize("how", CONVS, ids=str)
def test_convolutions_equal_dense_autograd(implementation, monkeypatch, how, block_bytes, part_images):
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(blocks, "_PART_IMAGES", part_images)
    layer = wb.SparseConv2d(8, 12, connectivity=0.9, seed=1, dtype=torch.float64, **how)
    dense = layer.dense_twin()
    x = torch.randn(3, 8, 9, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    upstream = torch.randn_like(dense(x))
    theirs = x.clone().requires_grad_()
    dense(theirs).backward(upstream)
    y, dx, dtheta, *_ = _gradients(layer, x, upstream)
    torch.testing.assert_close(y, dense(x).detach())
    torch.testing.assert_close(dx, theirs.grad)
    packed_rows, colptr = layer.wiring.packed_rows, layer.wiring.colptr
    columns = torch.repeat_interleave(torch.arange(colptr.numel() - 1), colptr.diff())
    signs = torch.where(packed_rows < 0, -1.0, 1.0).double()
    torch.testing.assert_close(dtheta, dense.weight.grad.flatten(1)[(packed_rows & 0x7FFFFFFF).long(), columns] * signs)


WINOGRAD = [(3, 1, 12), (5, 2, 12), (3, 0, 7), (5, (0, 4), 13)]  # kernel, padding, size


@pytest.mark.skipif(not ops.native_available(), reason="a kernel of the native library")
@pytest.mark.parametrize("density", [0.05, 0.6, 1.0])
@pytest.mark.parametrize(("kernel", "padding", "size"), WINOGRAD)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-12)])
def test_winograd_equals_dense_autograd(monkeypatch, kernel, padding, size, density, dtype, tolerance):
    monkeypatch.setattr(choice, "WINOGRAD_COST", 0.0)
    layer = wb.SparseConv2d(17, 20, kernel, padding=padding, connectivity=density, seed=1, dtype=dtype)
    assert choice.conv_by_winograd(layer.window, size, size, layer.wiring.theta.numel())
    dense, theirs = layer.dense_twin(), torch.randn(11, 17, size, size, dtype=dtype, requires_grad=True)
    expected = dense(theirs)
    upstream = torch.randn_like(expected)
    expected.backward(upstream)
    y, dx, dtheta, dbias = _gradients(layer, theirs.detach(), upstream)
    packed_rows, colptr = layer.wiring.packed_rows, layer.wiring.colptr
    columns = torch.repeat_interleave(torch.arange(colptr.numel() - 1), colptr.diff())
    signs = torch.where(packed_rows < 0, -1.0, 1.0).to(dtype)
    at_active = dense.weight.grad.flatten(1)[(packed_rows & 0x7FFFFFFF).long(), columns] * signs
    for ours, other in ((y, expected.detach()), (dx, theirs.grad), (dtheta, at_active), (dbias, dense.bias.grad)):
        assert (ours - other).abs().max() <= tolerance * other.abs().max()


def test_what_winograd_is_for():
    def by_winograd(connections, height=12, **how):
        return choice.conv_by_winograd(wb.SparseConv2d(**{**usual, **how}, budget=1).window, height, height, connections)

    usual = {"in_channels": 64, "out_channels": 64, "kernel_size": 5, "padding": 2}
    every = 64 * 64 * 25
    assert by_winograd(every)
    assert by_winograd(every // 2)
    assert not by_winograd(every // 10)
    for how in ({"kernel_size": 4}, {"kernel_size": (3, 5)}, {"stride": 2}, {"dilation": 2}, {"groups": 2}, {"in_channels": 3}):
        assert not by_winograd(every, **how)
    assert not by_winograd(512 * 512 * 25, in_channels=512, out_channels=512)  # 64 MB of points
    assert not by_winograd(every, height=1)  # below the kernel's reach: no output to speak of, most of a tile empty


@pytest.mark.parametrize("batch", [9, 75])  # of one part, and of four
def test_convolutions_have_the_same_bits_for_every_number_of_threads(implementation, threads, batch):
    layer = wb.SparseConv2d(16, 24, 3, padding=1, connectivity=0.9, seed=1)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, 16, 12, 12, generator=generator)
    upstream = torch.randn(batch, 24, 12, 12, generator=generator)
    outcomes = []
    for count in (1, 2, 3, 5):
        torch.set_num_threads(count)
        outcomes.append(_gradients(layer, x, upstream)[:3])
        assert torch.get_num_threads() == count
    for other in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcomes[0], other, strict=True))


def test_precision_and_modes_around_a_convolution_do_not_matter(implementation):
    layer = wb.SparseConv2d(8, 8, 3, connectivity=0.9, seed=1)
    x, upstream = torch.randn(2, 8, 6, 6), torch.randn(2, 8, 4, 4)
    with torch.inference_mode():
        first = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        second = _gradients(layer, x, upstream)[0]
    third = _gradients(layer, x, upstream)[0]
    assert torch.equal(first, third)
    assert second.dtype is torch.bfloat16  # the input came in as float32 and is computed with as such; the answer is short
    assert torch.equal(second, third.bfloat16())
