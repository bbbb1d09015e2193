"""Every registered operator is what torch expects of one, and computes what the backends compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import wirebound as wb
from wirebound.ops import GATES, ConvWindow
from wirebound.ops.registered import (
    OPERATORS,
    conv2d,
    conv2d_backward,
    linear,
    linear_backward,
    recurrent,
    recurrent_backward,
)
from wirebound.ops.registered.conv import numbers_of, window_of
from wirebound.wiring import LayerShape, Wiring

WINDOW = ConvWindow(4, 6, (2, 3), (1, 2), (1, 0), (0, 1), (2, 1), 2)


def arrays(*shapes: tuple[int, int], below: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """A wiring over matrices of these shapes, of which a layer is one; one θ may be below 0."""
    layers = [LayerShape(str(i), *shape) for i, shape in enumerate(shapes)]
    wiring = Wiring(layers, [max(1, rows * columns // 2) for rows, columns in shapes], seed=5)
    theta = wiring.theta.detach().clone()
    if below:
        theta[len(theta) // 2] *= -1
    return theta.requires_grad_(), wiring.packed_rows, wiring.colptr


def linear_call(below: bool = False) -> tuple[Any, ...]:
    return torch.randn(5, 7, requires_grad=True), *arrays((4, 3), (6, 7), below=below), torch.randn(6, requires_grad=True), 3, 6, True


def conv_call() -> tuple[Any, ...]:
    x, bias = torch.randn(3, 4, 5, 6, requires_grad=True), torch.randn(6, requires_grad=True)
    return x, *arrays((4, 3), (6, 12), (2, 2)), bias, 3, numbers_of(WINDOW), True


def recurrent_call(kind: str, lengths: bool = False) -> tuple[Any, ...]:
    hidden, steps, batch, n_in = 4, 3, 5, 2
    rows, states = GATES[kind] * hidden, (batch, hidden)
    x, h_0 = torch.randn(steps, batch, n_in, requires_grad=True), torch.randn(states, requires_grad=True)
    c_0 = torch.randn(states, requires_grad=True) if kind == "lstm" else None
    both = arrays((rows, n_in), (rows, hidden))
    biases = [torch.randn(rows, requires_grad=True) for _ in range(2)]
    ends = torch.tensor([3, 0, 2, 1, 3]) if lengths else None
    return x, h_0, c_0, *both, biases[0], *both, biases[1], ends, 0, n_in, kind, hidden, False, True, True


def plain(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.detach() if isinstance(value, Tensor) else value for value in values)


def calls() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    torch.manual_seed(0)
    x, theta, rows, colptr, _, first, _, bound = plain(linear_call())
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "linear": (linear, linear_call()),
        "linear with θ < 0": (linear, linear_call(below=True)),
        "linear_backward": (linear_backward, (x, torch.randn(5, 6), theta, rows, colptr, first, bound, True, True)),
        "linear_backward to θ alone": (linear_backward, (x, torch.randn(5, 6), theta, rows, colptr, first, bound, False, True)),
        "conv2d": (conv2d, conv_call()),
    }
    x, theta, rows, colptr, _, first, window, bound = plain(conv_call())
    dy = torch.randn_like(conv2d(*plain(conv_call())))
    found["conv2d_backward"] = (conv2d_backward, (x, dy, theta, rows, colptr, first, window, bound, True, True))
    for kind in ("lstm", "gru", "rnn_relu"):
        call = recurrent_call(kind, lengths=kind == "gru")
        found[f"recurrent {kind}"] = (recurrent, call)
        y, h_n, c_n, kept = recurrent(*plain(call))
        gradients = (torch.randn_like(y), torch.randn_like(h_n), torch.randn_like(c_n) if kind == "lstm" else None, kept)
        found[f"recurrent_backward {kind}"] = (recurrent_backward, (*gradients, *plain(call)[:-1], True))
    return found


CALLS = calls()


def test_every_operator_is_among_them() -> None:
    assert {id(operator) for operator, _ in CALLS.values()} == {id(operator) for operator in OPERATORS}


@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name: str) -> None:
    operator, arguments = CALLS[name]
    torch.library.opcheck(operator, arguments)


def test_a_window_comes_back_from_its_numbers() -> None:
    assert window_of(numbers_of(WINDOW)) == WINDOW


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("below", [False, True])
def test_linear_computes_what_the_matrix_does(below: bool) -> None:
    x, theta, rows, colptr, bias, first, n_out, bound = (
        value.double().detach().requires_grad_() if isinstance(value, Tensor) and value.is_floating_point() else value
        for value in linear_call(below)
    )
    layers = [LayerShape("a", 4, 3), LayerShape("b", 6, 7)]
    wiring = Wiring(layers, [6, 21], seed=5, dtype=torch.float64)
    with torch.no_grad():
        wiring.theta.copy_(theta)
    dense = wiring.layer_dense(1).requires_grad_()  # what is below 0 is dormant in there
    y, expected = linear(x, theta, rows, colptr, bias, first, n_out, bound), nn.functional.linear(x, dense, bias)
    torch.testing.assert_close(y, expected)
    dy = torch.randn_like(y)
    dx, dtheta, dbias = torch.autograd.grad(y, (x, theta, bias), dy)
    other_dx, ddense, other_dbias = torch.autograd.grad(expected, (x, dense, bias), dy)
    torch.testing.assert_close((dx, dbias), (other_dx, other_dbias))
    own = wiring.layer_index(1)
    columns = torch.repeat_interleave(torch.arange(7), own.layer_colptr().diff())
    slope = torch.where(own.layer_packed_rows() < 0, -1.0, 1.0) * (theta.detach()[own.start :] >= 0)
    torch.testing.assert_close(dtheta[own.start :], ddense[own.layer_packed_rows() & 0x7FFFFFFF, columns] * slope)
    assert not dtheta[: own.start].any()
    assert bool((theta < 0).any()) is below


def test_gradcheck_of_a_recurrent_layer() -> None:
    torch.manual_seed(1)
    call = [
        value.double().detach().requires_grad_() if isinstance(value, Tensor) and value.is_floating_point() else value
        for value in recurrent_call("gru", lengths=True)
    ]
    assert torch.autograd.gradcheck(lambda *values: recurrent(*values)[:2], call)


def test_a_second_derivative_is_refused() -> None:
    x, theta, *rest = linear_call()
    (dx,) = torch.autograd.grad(linear(x, theta, *rest).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="linear layer has no second derivative"):
        dx.sum().backward()


def test_importing_wirebound_leaves_the_compiler_alone() -> None:
    """It takes longer to import than everything else together."""
    import subprocess
    import sys

    code = f"import sys; import {wb.__name__}; assert 'torch._dynamo' not in sys.modules and 'torch._inductor' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
