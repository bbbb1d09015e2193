"""The sparse linear op against dense autograd, on both implementations."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wirebound as wb

SHAPES = [(1, 1, 1), (7, 5, 12), (64, 33, 200), (300, 784, 1000), (5, 9, 45), (40, 3, 1)]


def _compare(layer: wb.SparseLinear, x: torch.Tensor, tolerance: float) -> None:
    dense = layer.dense_weight().requires_grad_()
    bias = None if layer.bias is None else layer.bias.detach().clone().requires_grad_()
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = layer(mine), F.linear(theirs, dense, bias)
    assert torch.allclose(y, expected, rtol=tolerance, atol=tolerance)
    upstream = torch.randn(expected.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    y.backward(upstream)
    expected.backward(upstream)
    assert torch.allclose(mine.grad, theirs.grad, rtol=tolerance, atol=tolerance)
    packed_rows, colptr = layer.wiring.packed_rows, layer.wiring.colptr
    columns = torch.repeat_interleave(torch.arange(layer.in_features), colptr.diff())
    signs = torch.where(packed_rows < 0, -1.0, 1.0).to(x.dtype)
    at_active = dense.grad[(packed_rows & 0x7FFFFFFF).long(), columns] * signs
    assert torch.allclose(layer.wiring.theta.grad, at_active, rtol=tolerance, atol=tolerance)
    if bias is not None:
        assert torch.allclose(layer.bias.grad, bias.grad, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("batch", [1, 2, 7, 8, 10, 31, 33, 200])
@pytest.mark.parametrize(("n_out", "n_in", "budget"), SHAPES)
def test_equals_dense_autograd(implementation, n_out, n_in, budget, batch):
    generator = torch.Generator().manual_seed(batch)
    layer = wb.SparseLinear(n_in, n_out, budget=budget, seed=batch, dtype=torch.float64)
    _compare(layer, torch.randn(batch, n_in, dtype=torch.float64, generator=generator), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_leading_dimensions_and_strides(implementation, dtype):
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    layer = wb.SparseLinear(20, 30, connectivity=0.3, dtype=dtype)
    x = torch.randn(4, 3, 20, dtype=dtype)
    for view in (x, x.transpose(0, 1), torch.randn(20, 6, dtype=dtype).t(), x[:, 1], x[0, 0], torch.randn(4, 40, dtype=dtype)[:, ::2]):
        layer.zero_grad()
        _compare(layer, view, tolerance)


def test_empty_batch(implementation):
    layer = wb.SparseLinear(6, 4, budget=5)
    x = torch.empty(0, 6, requires_grad=True)
    y = layer(x)
    assert y.shape == (0, 4)
    y.sum().backward()
    assert layer.wiring.theta.grad.eq(0).all()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_shape_and_density(implementation, data):
    n_in, n_out = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    budget = data.draw(st.integers(1, n_in * n_out))
    batch = data.draw(st.integers(1, 40))
    layer = wb.SparseLinear(n_in, n_out, budget=budget, seed=data.draw(st.integers(0, 1000)), dtype=torch.float64)
    _compare(layer, torch.randn(batch, n_in, dtype=torch.float64), 1e-11)


def test_gradcheck(implementation):
    layer = wb.SparseLinear(6, 5, connectivity=0.5, dtype=torch.float64)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, _theta, _bias: layer(x), (x, layer.wiring.theta, layer.bias))


def test_same_bits_for_every_number_of_threads(implementation, threads):
    layer = wb.SparseLinear(500, 400, connectivity=0.05, seed=2)
    x = torch.randn(128, 500)
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


def test_newborns_get_a_gradient(implementation):
    """θ = 0 is active: its gradient is that of the weight, not zero as through a ReLU."""
    layer = wb.SparseLinear(8, 8, connectivity=0.5)
    with torch.no_grad():
        layer.wiring.theta.zero_()
    layer(torch.ones(2, 8)).sum().backward()
    assert (layer.wiring.theta.grad != 0).all()


def test_second_derivatives_are_refused():
    layer = wb.SparseLinear(4, 4, budget=5)
    y = layer(torch.ones(1, 4, requires_grad=True)).square().sum()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(y, layer.wiring.theta, create_graph=True)


def test_wrong_width_is_refused(implementation):
    with pytest.raises(ValueError, match=r"\(=7\) must be in_features \(=8\)"):
        wb.SparseLinear(8, 8, budget=1)(torch.ones(2, 7))


def test_wrong_dtype_is_refused(implementation):
    with pytest.raises(ValueError, match="dtype"):
        wb.SparseLinear(8, 8, budget=1)(torch.ones(2, 8, dtype=torch.float64))
