"""The sparse convolution against dense autograd, on both implementations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.ops.layout import rows_of, signs_of


def compare(layer: wb.SparseConv1d | wb.SparseConv2d, x: torch.Tensor, tolerance: float) -> None:
    """Output and all gradients equal those of the dense twin."""
    twin = layer.dense_twin()
    mine, theirs = x.detach().clone().requires_grad_(), x.detach().clone().requires_grad_()
    layer.zero_grad()
    y, expected = layer(mine), twin(theirs)
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=tolerance)
    upstream = torch.randn(expected.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    y.backward(upstream)
    expected.backward(upstream)
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=tolerance, atol=tolerance)
    wiring, index = layer.wiring, layer.wiring.layer_index(layer.layer_id)
    columns = torch.repeat_interleave(
        torch.arange(wiring.layers[layer.layer_id].n_in), index.layer_colptr().diff(), output_size=layer.active
    )
    packed_rows = index.layer_packed_rows()
    at_active = twin.weight.grad.flatten(1)[rows_of(packed_rows), columns] * signs_of(packed_rows, x.dtype)
    got = wiring.theta.grad[index.start : index.end]
    torch.testing.assert_close(got, at_active, rtol=tolerance, atol=tolerance)
    if layer.bias is not None:
        torch.testing.assert_close(layer.bias.grad, twin.bias.grad, rtol=tolerance, atol=tolerance)


CASES = [
    # channels in and out, kernel, stride, padding, dilation, groups, height, width
    (3, 4, (3, 3), 1, 1, 1, 1, 8, 8),
    (4, 6, (5, 5), 1, 2, 1, 1, 12, 12),
    (4, 6, (3, 3), 2, 1, 1, 2, 9, 11),
    (6, 6, (3, 3), 1, "same", 2, 6, 7, 10),
    (5, 7, (2, 4), 1, "same", (2, 1), 1, 6, 5),
    (2, 3, (1, 1), 2, 0, 1, 1, 7, 7),
    (2, 3, (1, 1), (3, 2), 2, 1, 1, 5, 6),
    (2, 3, (3, 3), 2, (2, 0), (3, 2), 1, 10, 12),
    (1, 1, (7, 1), (1, 3), 3, 1, 1, 3, 20),
    (8, 4, (3, 2), (2, 3), "valid", 1, 4, 16, 9),
    (3, 5, (4, 4), 4, 0, 1, 1, 15, 17),
    (2, 2, (3, 3), 1, 1, 1, 1, 1, 1),
    (2, 40, (3, 3), 1, 1, 1, 1, 4, 30),
    (2, 2, (260, 1), 1, (130, 0), 1, 1, 6, 5),
]


@pytest.mark.parametrize("batch", [1, 3, 8, 21])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_dense_autograd(implementation, case, batch):
    c_in, c_out, kernel, stride, padding, dilation, groups, height, width = case
    generator = torch.Generator().manual_seed(batch)
    layer = wb.SparseConv2d(
        c_in, c_out, kernel, stride, padding, dilation, groups, connectivity=0.4, seed=batch, dtype=torch.float64
    )
    with torch.no_grad():
        layer.bias.normal_(generator=generator)
    compare(layer, torch.randn(batch, c_in, height, width, dtype=torch.float64, generator=generator), 1e-11)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_shape(implementation, data):
    groups = data.draw(st.integers(1, 3))
    c_in, c_out = groups * data.draw(st.integers(1, 5)), groups * data.draw(st.integers(1, 5))
    pair = lambda low, high: (data.draw(st.integers(low, high)), data.draw(st.integers(low, high)))  # noqa: E731
    kernel, stride, padding, dilation = pair(1, 4), pair(1, 3), pair(0, 3), pair(1, 2)
    size = tuple(
        data.draw(st.integers(max(1, (k - 1) * d + 1 - 2 * p), 14))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    possible = c_out * c_in // groups * kernel[0] * kernel[1]
    layer = wb.SparseConv2d(
        c_in,
        c_out,
        kernel,
        stride,
        padding,
        dilation,
        groups,
        bias=data.draw(st.booleans()),
        budget=data.draw(st.integers(1, possible)),
        seed=data.draw(st.integers(0, 1000)),
        dtype=data.draw(st.sampled_from([torch.float32, torch.float64])),
    )
    dtype = layer.wiring.theta.dtype
    x = torch.randn(data.draw(st.integers(1, 18)), c_in, *size, dtype=dtype, generator=torch.Generator().manual_seed(0))
    compare(layer, x, 1e-11 if dtype == torch.float64 else 2e-4)


@pytest.mark.parametrize(("batch", "connectivity"), [(32, 0.05), (5, 1.0), (70, 0.002)])
def test_large(implementation, batch, connectivity):
    layer = wb.SparseConv2d(48, 40, 3, padding=1, connectivity=connectivity)
    compare(layer, torch.randn(batch, 48, 14, 14, generator=torch.Generator().manual_seed(2)), 1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 5, 9])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "groups", "length"),
    [(5, 1, 2, 1, 1, 40), (3, 2, 0, 2, 2, 33), (4, 1, "same", 1, 1, 9), (9, 3, 4, 1, 4, 100)],
)
def test_one_dimension(implementation, kernel, stride, padding, dilation, groups, length, batch, dtype):
    layer = wb.SparseConv1d(8, 12, kernel, stride, padding, dilation, groups, connectivity=0.3, dtype=dtype)
    x = torch.randn(batch, 8, length, dtype=dtype, generator=torch.Generator().manual_seed(3))
    compare(layer, x, 1e-11 if dtype == torch.float64 else 2e-4)


def test_inputs_that_are_not_contiguous(implementation):
    layer = wb.SparseConv2d(6, 5, 3, padding=1, connectivity=0.4, dtype=torch.float64)
    x = torch.randn(9, 6, 8, 10, dtype=torch.float64)
    wide = torch.randn(9, 12, 16, 20, dtype=torch.float64)
    views = [
        x.contiguous(memory_format=torch.channels_last),
        x.transpose(2, 3),
        wide[:, ::2, ::2, ::2],
        x[2:3],
        x[:1].expand(4, -1, -1, -1),
    ]
    expected = layer.dense_twin()
    for view in views:
        torch.testing.assert_close(layer(view), expected(view))
        upstream = torch.randn(layer(view).shape, dtype=x.dtype).transpose(2, 3).contiguous().transpose(2, 3)
        leaf = view.detach().requires_grad_()
        mine = torch.autograd.grad(layer(leaf), leaf, upstream)[0]
        torch.testing.assert_close(mine, torch.autograd.grad(expected(leaf), leaf, upstream)[0])


def test_gradcheck(implementation):
    layer = wb.SparseConv2d(3, 4, 3, 2, 1, groups=1, connectivity=0.4, dtype=torch.float64)
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, _theta, _bias: layer(x), (x, layer.wiring.theta, layer.bias))


def test_all_connections_one_and_none(implementation):
    x = torch.randn(3, 4, 6, 6, dtype=torch.float64)
    compare(wb.SparseConv2d(4, 5, 3, connectivity=1.0, dtype=torch.float64), x, 1e-11)
    compare(wb.SparseConv2d(4, 5, 3, budget=1, seed=3, dtype=torch.float64), x, 1e-11)  # nearly all columns empty
    shapes = [wb.nn.conv.LayerShape("first", 5, 36), wb.nn.conv.LayerShape("second", 5, 36)]
    wiring = wb.Wiring(shapes, [0, 20], dtype=torch.float64)
    for part in (0, 1):
        compare(wb.SparseConv2d(4, 5, 3, wiring=wiring, layer_id=part), x, 1e-11)


def test_empty_batch(implementation):
    layer = wb.SparseConv2d(3, 4, 3, budget=5)
    x = torch.empty(0, 3, 6, 7, requires_grad=True)
    y = layer(x)
    assert y.shape == (0, 4, 4, 5)
    y.sum().backward()
    assert layer.wiring.theta.grad.eq(0).all()
    assert x.grad.shape == x.shape


def test_only_what_is_asked_for(implementation):
    layer = wb.SparseConv2d(3, 4, 3, connectivity=0.5, dtype=torch.float64)
    x, dy = torch.randn(5, 3, 6, 6, dtype=torch.float64), torch.randn(5, 4, 4, 4, dtype=torch.float64)
    arguments = (x, dy, layer.wiring.theta.detach(), layer.wiring.layer_index(0), layer.window)
    backend = ops.backend_of(arguments[2])
    dx, dtheta = backend.conv2d_backward(*arguments, True, True)
    only_dx, nothing = backend.conv2d_backward(*arguments, True, False)
    assert nothing is None
    torch.testing.assert_close(only_dx, dx)
    nothing, only_dtheta = backend.conv2d_backward(*arguments, False, True)
    assert nothing is None
    torch.testing.assert_close(only_dtheta, dtheta)


def test_a_bad_image_spoils_no_other(implementation):
    layer = wb.SparseConv2d(3, 4, 3, padding=1, connectivity=0.5)
    x = torch.randn(10, 3, 5, 5)
    x[3] = float("nan")
    y = layer(x)
    assert y.isfinite().flatten(1).all(1).tolist() == [number != 3 for number in range(10)]


@pytest.mark.parametrize("stride", [1, 2])
def test_same_bits_for_every_number_of_threads(implementation, threads, stride):
    layer = wb.SparseConv2d(24, 30, 3, stride, 1, connectivity=0.1, seed=2)
    for batch in (1, 20, 33):
        x = torch.randn(batch, 24, 11, 13)
        outcomes = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            layer.zero_grad()
            mine = x.clone().requires_grad_()
            y = layer(mine)
            y.square().sum().backward()
            outcomes.append((y.detach(), mine.grad, layer.wiring.theta.grad.clone()))
        for other in outcomes[1:]:
            for a, b in zip(outcomes[0], other, strict=True):
                assert torch.equal(a, b)


def test_the_reference_runs_in_other_dtypes():
    layer = wb.SparseConv2d(3, 4, 3, connectivity=0.5, dtype=torch.bfloat16)
    x = torch.randn(2, 3, 6, 6).bfloat16().requires_grad_()
    y = layer(x)
    y.sum().backward()
    expected = F.conv2d(x.detach().float(), layer.dense_weight().float())
    torch.testing.assert_close(y.float(), expected, rtol=0.05, atol=0.05)
    assert x.grad.dtype is torch.bfloat16


def test_nothing_dense_in_the_reference():
    """A weight of 4 GB would be noticed."""
    with ops.use("reference"):
        layer = wb.SparseConv2d(10_000, 10_000, (1, 10), budget=100, bias=False)
        y = layer(torch.ones(1, 10_000, 1, 10, requires_grad=True))
        y.sum().backward()
    assert isinstance(layer, nn.Module)
    torch.testing.assert_close(layer.wiring.theta.grad, signs_of(layer.wiring.packed_rows, torch.float32))
