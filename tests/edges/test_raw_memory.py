"""Kernels read raw memory: whatever stands in place of an input, a gradient, θ or optimiser state is read right or refused."""

import threading
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.testing._internal.two_tensor import TwoTensor

import wirebound as wb
from wirebound import WiringError
from wirebound.ops import spare_memory

_LAYERS = {
    "linear": (lambda: wb.SparseLinear(6, 4, connectivity=0.5), (3, 6)),
    "conv2d": (lambda: wb.SparseConv2d(2, 3, 3, connectivity=0.5), (2, 2, 8, 8)),
    "lstm": (lambda: wb.SparseLSTM(6, 4, connectivity=0.5), (5, 3, 6)),
    "rnn": (lambda: wb.SparseRNN(6, 4, connectivity=0.5), (5, 3, 6)),
    "cell": (lambda: wb.SparseGRUCell(6, 4, connectivity=0.5), (3, 6)),
    "stack": (lambda: wb.sparsify(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), connectivity=0.5), (3, 6)),
}


@pytest.fixture(params=_LAYERS)
def layer_and_shape(request):
    make, shape = _LAYERS[request.param]
    return make(), shape


def _first(y):
    return y[0] if isinstance(y, tuple) else y


def test_zeros_that_take_no_memory(layer_and_shape):
    layer, shape = layer_and_shape
    y = _first(layer(torch._efficientzerotensor(shape)))
    torch.testing.assert_close(y, _first(layer(torch.zeros(shape))))


@pytest.mark.parametrize("change", [torch.Tensor.half, torch.Tensor.flatten, lambda t: t.to("meta")], ids=["dtype", "shape", "device"])
def test_saved_tensors_that_come_back_otherwise(layer_and_shape, change):
    layer, shape = layer_and_shape
    with saved_tensors_hooks(change, lambda tensor: tensor):
        y = _first(layer(torch.randn(shape, requires_grad=True)))
    with pytest.raises(RuntimeError, match="saved_tensors_hooks must give back what they were given"):
        y.sum().backward()


def test_saved_tensors_that_come_back_as_they_were(layer_and_shape):
    layer, shape = layer_and_shape
    x = torch.randn(shape, requires_grad=True)
    with saved_tensors_hooks(lambda tensor: tensor.double(), lambda tensor: tensor.float()):
        _first(layer(x)).sum().backward()
    mine, x.grad = x.grad, None
    _first(layer(x)).sum().backward()
    torch.testing.assert_close(mine, x.grad)


def _trained(model, optimizer=None, method=wb.DeepR, **settings):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.001)
    rewiring = method(model, optimizer, **settings)
    return rewiring, wb.wirings(model)[0]


def _other_dtype(theta):
    theta.grad_dtype = torch.float64
    theta.grad = torch.ones_like(theta, dtype=torch.float64)


def _kind(make):
    def put(theta):
        theta.grad = make(theta.detach())

    return put


@pytest.mark.parametrize(
    "put",
    [_other_dtype, _kind(torch.Tensor.to_sparse), _kind(lambda t: TwoTensor(t, t))],
    ids=["dtype", "sparse", "subclass"],
)
@pytest.mark.parametrize("method", [wb.DeepR, wb.ConstantRate, wb.SET, wb.Fixed])
def test_a_gradient_that_cannot_be_read_is_refused(model, put, method):
    rewiring, wiring = _trained(model, method=method)
    before = wiring.theta.detach().clone()
    put(wiring.theta)
    with pytest.raises(ValueError, match="the gradient of θ"):
        rewiring.step()
    assert torch.equal(wiring.theta, before)
    wiring.check()


@pytest.mark.parametrize(
    "kind",
    [torch.clone, lambda g: torch._neg_view(-g), lambda g: torch.stack([g, g], 1)[:, 0]],
    ids=["plain", "sign", "stride"],
)
def test_a_gradient_in_another_layout(model, x, y, kind):
    rewiring, wiring = _trained(model, l1=0.0)
    with torch.no_grad():
        wiring.theta.add_(1)
    F.cross_entropy(model(x), y).backward()
    gradient = wiring.theta.grad.clone()
    wiring.theta.grad = kind(gradient)
    expected = wiring.theta.detach() - 0.001 * gradient
    rewiring.step()
    torch.testing.assert_close(wiring.theta.detach(), expected)


def test_a_gradient_of_zeros_that_take_no_memory(model):
    rewiring, wiring = _trained(model, l1=0.0, noise=0.0)
    before = wiring.theta.detach().clone()
    wiring.theta.grad = torch._efficientzerotensor(wiring.budget)
    rewiring.step()
    assert torch.equal(wiring.theta, before)


_STATES = {
    "short": lambda k: torch.zeros(3),
    "long": lambda k: torch.zeros(10 * k),
    "expanded": lambda k: torch.zeros(1).expand(k),
    "stride": lambda k: torch.zeros(k, 2)[:, 0],
    "meta": lambda k: torch.zeros(k, device="meta"),
}


@pytest.mark.parametrize("kind", _STATES)
@pytest.mark.parametrize("method", [wb.DeepR, wb.ConstantRate, wb.SET])
def test_optimiser_state_that_others_have_put_there(model, x, y, kind, method):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rewiring, wiring = _trained(model, optimizer, method)
    for _ in range(2):
        F.cross_entropy(model(x), y).backward()
        rewiring.step()
    optimizer.state[wiring.theta]["exp_avg"] = _STATES[kind](wiring.budget)
    before = wiring.theta.detach().clone()
    with pytest.raises((ValueError, WiringError)):
        rewiring.step()
    assert torch.equal(wiring.theta, before)
    wiring.check()


@pytest.mark.parametrize("born", [torch.zeros(3, dtype=torch.int32), torch.zeros(200, dtype=torch.int8)])
@pytest.mark.parametrize("method", [partial(wb.DeepR, newborn_moments="own"), wb.ConstantRate, wb.SET])
def test_ages_that_others_have_put_there(model, x, y, born, method):
    rewiring, wiring = _trained(model, torch.optim.Adam(model.parameters()), method)
    assert wiring.budget == 200
    F.cross_entropy(model(x), y).backward()
    rewiring.adapter.born[0] = born
    with pytest.raises((ValueError, WiringError)):
        rewiring.step()
    wiring.check()


def test_a_parameter_whose_storage_was_freed(model, x):
    model(x)
    wb.wirings(model)[0].theta.untyped_storage().resize_(0)
    with pytest.raises(WiringError, match="no numbers in memory"):
        model(x)


@pytest.mark.parametrize("what", ["packed_rows", "colptr"])
@pytest.mark.parametrize("value", [2**30, 2**31 - 1, -1])
def test_positions_edited_unseen_where_weights_become_dense(model, what, value):
    wiring = wb.wirings(model)[0]
    if what == "packed_rows" and value == -1:
        pytest.skip("a sign and a row")
    weight = next(m for m in model.modules() if isinstance(m, wb.SparseLinear)).weight
    getattr(wiring, what).data[5] = value  # torch does not count such a write
    with pytest.raises(WiringError):
        weight + 0
    with pytest.raises(WiringError):
        wiring.check()


def test_spare_memory_is_lent_to_one_thread_at_a_time():
    """Two threads that find the same piece at the same moment must not both get it."""
    like, faults = torch.zeros(1), []

    def borrow(number):
        for _ in range(300):
            piece = spare_memory.take(like, 600_000)
            piece[:8] = number
            other = spare_memory.take(like, 600_000)
            other[:8] = -number
            if not bool((piece[:8] == number).all()):
                faults.append(number)
            del piece, other

    threads = [threading.Thread(target=borrow, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
