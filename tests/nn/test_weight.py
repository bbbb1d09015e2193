"""``layer.weight``: described for nothing, dense with its gradient when computed with, and never written to."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound.nn.weight import SparseWeight


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return wb.sparsify(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4)), 0.4)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: wb.SparseLinear(5, 7, connectivity=0.3),
    "double": lambda: wb.SparseLinear(5, 7, connectivity=0.3, dtype=torch.float64),
    "conv1d": lambda: wb.SparseConv1d(4, 6, 3, connectivity=0.3),
    "conv2d": lambda: wb.SparseConv2d(4, 6, (2, 3), groups=2, connectivity=0.3),
    "one of two": lambda: two_layers()[2],
}


@pytest.mark.parametrize("kind", LAYERS)
def test_the_description_is_that_of_the_twin(kind: str) -> None:
    layer = LAYERS[kind]()
    weight, dense = layer.weight, layer.dense_twin().weight
    assert isinstance(weight, Tensor)
    for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "is_meta", "itemsize", "nbytes"):
        assert getattr(weight, name) == getattr(dense, name), name
    for name in ("size", "dim", "numel", "nelement", "element_size", "stride", "is_contiguous", "is_floating_point"):
        assert getattr(weight, name)() == getattr(dense, name)(), name
    assert weight.grad is None
    assert torch.equal(weight.new_zeros(3), dense.new_zeros(3))
    assert not isinstance(weight, nn.Parameter)
    assert layer.made_dense == 0


def test_a_description_takes_no_memory() -> None:
    side = 1_000_000  # the matrix would be 4 TB
    layer = wb.SparseLinear(side, side, budget=10)
    assert layer.weight.shape == (side, side)
    assert layer.weight.T[5:].detach().data.dtype is torch.float32
    assert "active=10" in repr(layer.weight)


COMPUTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": lambda w: w.norm(),
    "product": lambda w: w @ w.t(),
    "linear": lambda w: F.linear(torch.ones(3, w.shape[1]), w),
    "arithmetic": lambda w: 1 - 2 * w + w**2,
    "rows": lambda w: w[2:4, ::2] * 1,
    "chosen": lambda w: w[torch.tensor([1, 3])],
    "chunks": lambda w: torch.cat(w.chunk(3)),
    "reshaped": lambda w: w.view(-1, 2).reshape(-1).square(),
    "other type": lambda w: w.to(torch.float64),
    "iterated": lambda w: torch.stack(list(w)),
    "einsum": lambda w: torch.einsum("oi,oj->ij", w, w),
    "singular values": lambda w: torch.linalg.svdvals(w),
    "checkpoint": lambda w: torch.utils.checkpoint.checkpoint(torch.tanh, w, use_reentrant=False),
    "vector": lambda w: nn.utils.parameters_to_vector([w]),
}


@pytest.mark.parametrize("computation", COMPUTATIONS)
def test_computing_with_it_is_computing_with_the_dense_matrix(computation: str) -> None:
    layer = two_layers()[0]
    dense = layer.dense_weight().requires_grad_()
    result, expected = COMPUTATIONS[computation](layer.weight), COMPUTATIONS[computation](dense)
    assert type(result) is Tensor
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    expected.sum().backward()
    assert_theta_has(layer, dense.grad)


def assert_theta_has(layer: nn.Module, dense_gradient: Tensor) -> None:
    """θ's gradient is the dense one at the active positions, times the signs; 0 for other layers of the wiring."""
    weights, gradient = layer.dense_weight().flatten(1), dense_gradient.flatten(1)
    active = weights.t() != 0
    index = layer.wiring.layer_index(layer.layer_id)
    theta = layer.wiring.theta.grad
    expected = torch.zeros_like(theta)
    expected[index.start : index.end] = (gradient * weights.sign()).t()[active]
    torch.testing.assert_close(theta, expected)


def test_a_convolution_with_it() -> None:
    layer = wb.SparseConv2d(4, 6, 3, groups=2, connectivity=0.3)
    x = torch.randn(2, 4, 5, 5, requires_grad=True)
    torch.testing.assert_close(F.conv2d(x, layer.weight, layer.bias, groups=2), layer(x))
    dense = layer.dense_weight().requires_grad_()
    F.conv2d(x, layer.weight, groups=2).square().sum().backward()
    F.conv2d(x.detach(), dense, groups=2).square().sum().backward()
    assert_theta_has(layer, dense.grad)


def test_a_weight_that_lies_otherwise() -> None:
    class Transposed(wb.SparseLinear):
        def arranged(self, matrix: Tensor) -> Tensor:
            return matrix.t()

    layer = Transposed(5, 7, bias=False, connectivity=0.4)
    x = torch.randn(3, 5)
    torch.testing.assert_close(x @ layer.weight, layer(x))
    assert layer.weight.shape == (5, 7)
    (through,) = torch.autograd.grad((x @ layer.weight).square().sum(), layer.wiring.theta)
    (direct,) = torch.autograd.grad(layer(x).square().sum(), layer.wiring.theta)
    torch.testing.assert_close(through, direct)


def test_a_function_of_ones_own_gets_its_gradient_to_theta() -> None:
    class Product(torch.autograd.Function):  # as models with kernels of their own have them
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight.t()

        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensors
            return dy @ weight, dy.t() @ x

    layer = wb.SparseLinear(5, 7, bias=False, connectivity=0.5)
    x = torch.randn(4, 5, requires_grad=True)
    for y in (Product.apply(x, layer.weight), layer(x)):
        y.square().sum().backward()
    twice = layer.wiring.theta.grad, x.grad
    layer.wiring.theta.grad = x.grad = None
    layer(x).square().sum().backward()
    torch.testing.assert_close(twice, (2 * layer.wiring.theta.grad, 2 * x.grad))


def test_it_has_second_derivatives() -> None:
    layer = wb.SparseLinear(5, 7, connectivity=0.5, dtype=torch.float64)
    theta = layer.wiring.theta
    (first,) = torch.autograd.grad((layer.weight**3).sum(), theta, create_graph=True)
    first.square().sum().backward()
    # d/dθ (3 s³ θ²)² = 36 θ³
    torch.testing.assert_close(theta.grad, 36 * theta.detach() ** 3)


def test_without_gradient() -> None:
    layer = wb.SparseLinear(5, 7, connectivity=0.5)
    with torch.no_grad():
        assert layer.weight.requires_grad  # as a Parameter says
        assert not (layer.weight + 1).requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(layer.weight + 1, layer.dense_weight() + 1)
    assert torch.equal(layer.weight.data.clone(), layer.dense_weight())
    assert torch.equal(torch.from_numpy(layer.weight.detach().numpy().copy()), layer.dense_weight())
    with pytest.raises(RuntimeError, match="requires grad"):
        layer.weight.numpy()
    assert layer.weight.tolist() == layer.dense_weight().tolist()
    layer.requires_grad_(False)
    assert not layer.weight.requires_grad
    assert not (layer.weight + 1).requires_grad


WRITES: dict[str, Callable[[nn.Module], object]] = {
    "data": lambda layer: layer.weight.data.normal_(),
    "init": lambda layer: nn.init.xavier_uniform_(layer.weight),
    "orthogonal": lambda layer: nn.init.orthogonal_(layer.weight),
    "eye": lambda layer: nn.init.eye_(layer.weight),
    "copy": lambda layer: layer.weight.copy_(torch.ones(7, 5)),
    "assign": lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones(7, 5))),
    "assign tensor": lambda layer: setattr(layer, "weight", torch.ones(7, 5)),
    "assign data": lambda layer: setattr(layer.weight, "data", torch.ones(7, 5)),
    "item": lambda layer: layer.weight.__setitem__(0, 1.0),
    "mask": lambda layer: layer.weight.data.__setitem__(layer.weight > 0, 0.0),
    "view": lambda layer: layer.weight.view(-1).zero_(),
    "chunk": lambda layer: layer.weight.detach().chunk(2)[1].zero_(),
    "transposed": lambda layer: layer.weight.T.fill_(1),
    "in place": lambda layer: layer.weight.__iadd__(1),
    "out": lambda layer: torch.mul(torch.ones(7, 5), 2, out=layer.weight.detach()),
    "list": lambda layer: torch._foreach_mul_([layer.weight.data], 2),
    "numpy": lambda layer: layer.weight.detach().numpy().fill(1),
    "grad": lambda layer: setattr(layer.weight, "grad", torch.ones(7, 5)),
    "freeze": lambda layer: layer.weight.requires_grad_(False),
    "parameter": lambda layer: nn.Parameter(layer.weight),
    "hook": lambda layer: layer.weight.register_hook(print),
    "retain": lambda layer: layer.weight.retain_grad(),
}


@pytest.mark.parametrize("graph", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("write", WRITES)
def test_writing_is_refused(write: str, graph: bool) -> None:
    layer = wb.SparseLinear(5, 7, connectivity=0.3)
    before = layer.dense_weight()
    with torch.set_grad_enabled(graph), pytest.raises((RuntimeError, ValueError), match=r"weight|read-only"):
        WRITES[write](layer)
    assert torch.equal(layer.dense_weight(), before)
    layer.weight.grad = None  # what zeroing gradients does


def test_the_refusal_says_how_weights_are_set() -> None:
    layer = wb.SparseLinear(5, 7, connectivity=0.3)
    with pytest.raises(RuntimeError, match=re.escape("normal_") + ".*keep='largest'.*theta"):
        nn.init.normal_(layer.weight)


def test_reading_is_of_its_moment() -> None:
    layer = wb.SparseLinear(5, 7, connectivity=0.3)
    weight = layer.weight
    with torch.no_grad():
        layer.wiring.theta.mul_(2)
    with pytest.raises(RuntimeError, match="read it again"):
        weight.sum()
    assert torch.equal(layer.weight.detach().clone(), layer.dense_weight())


def test_a_functional_call_reads_its_own_theta() -> None:
    layer = wb.SparseLinear(5, 7, connectivity=0.3)

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.layer.weight.t()

    theta = torch.ones_like(layer.wiring.theta).requires_grad_()
    x = torch.randn(3, 5, requires_grad=True)
    y = torch.func.functional_call(Reads(), {"layer.wiring.theta": theta}, (x,))
    y.sum().backward()
    torch.testing.assert_close(x.grad, layer.dense_weight().sign().sum(0).expand(3, 5))
    assert theta.grad is not None
    assert layer.wiring.theta.grad is None


def test_the_model_around_it_is_as_before() -> None:
    model = two_layers()
    names = list(model.state_dict()), [name for name, _ in model.named_parameters()]
    assert not any(name.endswith("weight") for group in names for name in group)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(model).double()):
        assert isinstance(copied[0].weight, SparseWeight)
        assert copied[0].weight.dtype is copied[0].wiring.theta.dtype
        torch.testing.assert_close(copied[0].weight.clone(), model[0].dense_weight().to(copied[0].weight.dtype))
    assert torch.equal(pickle.loads(pickle.dumps(model[0].weight)), model[0].dense_weight())
    assert torch.equal(copy.deepcopy(model[0].weight), model[0].dense_weight())


def test_growing_by_the_gradient_sees_a_weight_that_was_computed_with() -> None:
    layer = wb.SparseLinear(5, 7, connectivity=0.3)
    x, dy = torch.randn(4, 5), torch.randn(4, 7)
    layer.wiring.watch = {}
    F.linear(x, layer.weight).backward(dy)
    (source,) = layer.wiring.watch[0]
    torch.testing.assert_close(source.block(0, 5), dy.t() @ x)


def test_matrices_of_other_layers() -> None:
    lstm = wb.SparseLSTM(5, 3, connectivity=0.4)
    matrix = lstm.weight_ih_l0
    assert (matrix.dtype, matrix.device, matrix.shape) == (torch.float32, torch.device("cpu"), (12, 5))
    assert matrix.size(1) == 5
    x = torch.randn(2, 5)
    torch.testing.assert_close(F.linear(x, matrix), x @ matrix.dense_weight().t())
    with pytest.raises(RuntimeError, match="cannot be changed"):
        nn.init.orthogonal_(lstm.weight_hh_l0)
    with pytest.raises(RuntimeError, match="cannot be changed"):
        matrix.data = torch.ones(12, 5)
    with pytest.raises(RuntimeError, match="cannot be changed"):
        lstm.weight_ih_l0 = nn.Parameter(torch.ones(12, 5))
    assert not hasattr(matrix, "no_such_thing")
    attention = wb.sparsify(nn.MultiheadAttention(8, 2), 0.4)
    weight = attention.in_proj_weight
    assert weight.shape == (24, 8)
    torch.testing.assert_close(weight.clone(), attention.dense_twin().in_proj_weight)
    weight.sum().backward()
    (wiring,) = wb.wirings(attention)
    torch.testing.assert_close(wiring.theta.grad[: wiring.bounds[3]].abs(), torch.ones(wiring.bounds[3]))
    other = wb.sparsify(nn.MultiheadAttention(8, 2, kdim=4), 0.4)
    assert other.in_proj_weight is None


def test_masked_parameters_are_read_and_refused_likewise() -> None:
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 3))
    wb.sparsify(model, 0.4, include=["0.weight", nn.Linear])
    weight = model[0].weight
    assert (weight.shape, weight.dtype, weight.requires_grad) == ((10, 6), torch.float32, True)
    assert model[0].masked_weight.made_dense == 0
    for write in (nn.init.normal_, lambda w: w.data.zero_(), lambda w: w[0].data.fill_(1.0)):
        with pytest.raises(RuntimeError, match="cannot be changed"):
            write(model[0].weight)
    model(torch.arange(10)).sum().backward()
    assert model[0].masked_weight.made_dense == 1
    assert "on demand" not in str(wb.ledger(model))


def test_the_ledger_counts_how_often() -> None:
    layer = wb.SparseLinear(5, 7, connectivity=0.3)
    assert "on demand" not in str(wb.ledger(layer))
    for _ in range(3):
        layer.weight.sum()
    (entry,) = (e for e in wb.ledger(layer).entries if e.part == "dense weights on demand")
    assert entry.bytes == 5 * 7 * 4
    assert "3 times" in entry.note
    assert "420 B" in entry.note


@pytest.mark.slow
def test_a_compiled_model_may_read_it() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 7)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.to(self.layer.weight.dtype)) + F.linear(x, self.layer.weight)

    model, x = wb.sparsify(Reads(), 0.5), torch.randn(3, 5)
    results = []
    for network in (model, torch.compile(model, backend="aot_eager")):
        model.zero_grad()
        y = network(x)
        y.square().sum().backward()
        results.append((y, [p.grad for p in model.parameters()]))
    torch._dynamo.reset()
    torch.testing.assert_close(*results)
