"""Sparse rows as input of a linear layer: what dense rows give, on both implementations, and what is refused."""

import copy

import pytest
import torch
import torch.nn.functional as F

import wirebound as wb
from wirebound.wiring import WiringError

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


def _rows(batch, n_in, dtype=torch.float32, share=0.1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, n_in, dtype=dtype, generator=generator)
    return x * (torch.rand(batch, n_in, generator=generator) < share)


def _gradients(model, x):
    for parameter in model.parameters():
        parameter.grad = None
    y = model(x)
    y.square().sum().backward()
    return y.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "n_in", "n_out", "budget"), [(1, 1, 1, 1), (7, 40, 5, 30), (33, 500, 20, 900), (0, 6, 3, 9)])
@pytest.mark.parametrize("layout", ["to_sparse_csr", "to_sparse_coo"])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_dense_rows(implementation, batch, n_in, n_out, budget, dtype, layout, bias):
    layer = wb.SparseLinear(n_in, n_out, budget=budget, bias=bias, seed=1, dtype=dtype)
    x = _rows(batch, n_in, dtype, share=0.3)
    y, gradients = _gradients(layer, getattr(x, layout)())
    expected, theirs = _gradients(layer, x)
    assert y.layout is torch.strided
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(gradients, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_the_first_layer_of_a_stack(implementation, scope):
    dense = torch.nn.Sequential(torch.nn.Linear(60, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    model = wb.sparsify(dense, connectivity=0.2, scope=scope, seed=3)
    x = _rows(9, 60)
    y, gradients = _gradients(model, x.to_sparse_csr())
    expected, theirs = _gradients(model, x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(gradients, theirs)


def test_duplicates_add_up_and_order_does_not_count(implementation):
    layer = wb.SparseLinear(6, 3, budget=12, seed=1, dtype=torch.float64)
    crow, col = torch.tensor([0, 3, 5]), torch.tensor([4, 1, 4, 5, 0])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    csr = torch.sparse_csr_tensor(crow, col, values, (2, 6), check_invariants=False)
    dense = torch.zeros(2, 6, dtype=torch.float64)
    dense[0, 4], dense[0, 1], dense[1, 5], dense[1, 0] = 4.0, 2.0, 4.0, 5.0
    coo = torch.sparse_coo_tensor(torch.tensor([[1, 0, 0, 1, 0], [5, 4, 1, 0, 4]]), values[[3, 0, 1, 4, 2]], (2, 6))
    for x in (csr, coo):
        torch.testing.assert_close(_gradients(layer, x), _gradients(layer, dense))


def test_threads_do_not_change_a_bit():
    layer = wb.SparseLinear(3000, 40, budget=30_000, seed=1)
    x, results = _rows(64, 3000, share=0.3).to_sparse_csr(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(_gradients(layer, x))
    finally:
        torch.set_num_threads(1)
    for y, gradients in results[1:]:
        assert torch.equal(y, results[0][0])
        assert all(torch.equal(gradients[name], results[0][1][name]) for name in gradients)


def test_what_cannot_be_taken_is_refused_with_a_sentence(implementation):
    layer, x = wb.SparseLinear(6, 3, budget=9, seed=1), _rows(2, 6, share=0.5)
    refused = [
        (x.to_sparse_csc(), "must be torch.sparse_csr or torch.sparse_coo"),
        (x[:, :5].to_sparse_csr(), r"must be in_features \(=6\)"),
        (x.double().to_sparse_csr(), "dtype of the input"),
        (x[0].to_sparse_coo(), r"\[batch, in_features\]"),
        (x.to_sparse_csr().requires_grad_(), "no gradient to a sparse input"),
    ]
    for sparse, why in refused:
        with pytest.raises(ValueError, match=why):
            layer(sparse)
    outside = torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([77]), torch.ones(1), (1, 6), check_invariants=False)
    falling = torch.sparse_csr_tensor(torch.tensor([0, 2, 1]), torch.tensor([1]), torch.ones(1), (2, 6), check_invariants=False)
    for sparse in (outside, falling):
        with pytest.raises(ValueError, match="rows of a sparse input"):
            layer(sparse)
    with pytest.raises(ValueError, match="cannot be traced"):
        torch.func.vmap(lambda scale: layer(x.to_sparse_csr()) * scale)(torch.ones(2))


def test_overwritten_pointers_are_found_as_they_are_read(implementation):
    layer, x = wb.SparseLinear(6, 3, budget=9, seed=1), torch.ones(2, 6).to_sparse_csr()
    for wrong in (-5, 1 << 62):
        spoilt = copy.deepcopy(layer)
        spoilt(x)
        spoilt.wiring.colptr.numpy()[3] = wrong  # where torch counts no version
        with pytest.raises(WiringError):
            spoilt(x)
    spoilt = copy.deepcopy(layer)
    spoilt(x)
    spoilt.wiring.packed_rows.numpy()[2] = 1 << 30
    with pytest.raises((WiringError, IndexError, RuntimeError)):
        spoilt(x)


def test_autocast_gives_its_precision():
    layer, x = wb.SparseLinear(50, 4, budget=80, seed=1), _rows(5, 50)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x.to_sparse_csr())
        half = layer(x.bfloat16().to_sparse_csr())
    assert y.dtype is half.dtype is torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x), rtol=2e-2, atol=2e-2)


def test_a_dormant_theta_is_read_as_zero(implementation):
    layer, x = wb.SparseLinear(6, 3, budget=9, seed=1), torch.ones(2, 6)
    with torch.no_grad():
        layer.wiring.theta[2] = -1.0
    with pytest.warns(RuntimeWarning):
        y = layer(x.to_sparse_csr())
    torch.testing.assert_close(y, F.linear(x, layer.dense_weight(), layer.bias))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_models_break_the_graph():
    model = wb.sparsify(torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), budget=40)
    x = _rows(3, 20).to_sparse_csr()
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(x), model(x))


def test_the_device_backend_takes_them():
    layer, x = wb.SparseLinear(40, 5, budget=30, seed=1), _rows(7, 40)
    expected = _gradients(layer, x)
    with wb.ops.use("device"):
        torch.testing.assert_close(_gradients(layer, x.to_sparse_csr()), expected)
