"""The Triton kernels in Triton's interpreter, over random shapes: ``make triton``, for Triton is a gigabyte."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton", reason="Triton is not installed: `make triton` runs these")

import wirebound as wb
from wirebound import ops
from wirebound.ops import philox
from wirebound.ops.device import layers
from wirebound.ops.device import triton_kernels as kernels
from wirebound.ops.rule import DriftAndNoise, Rule, RuleKind, State
from wirebound.wiring import LayerShape, Wiring

if not torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] != "1":
    pytest.skip("without a card the kernels run in the interpreter only", allow_module_level=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def shapes(seed: int) -> tuple[Wiring, int, int]:
    """A wiring over one to three random matrices, one of its layers, and a batch."""
    numbers = torch.randint(1, 12, (7,), generator=torch.Generator().manual_seed(seed)).tolist()
    count = 1 + seed % 3
    given = [LayerShape(str(i), numbers[2 * i], numbers[2 * i + 1]) for i in range(count)]
    counts = [max(0, (layer.possible * (1 + (seed + i) % 4)) // 5) for i, layer in enumerate(given)]
    return Wiring(given, counts, seed=seed), seed % count, [1, 5, 64, 70][seed % 4]


@pytest.mark.parametrize("seed", range(12))
def test_linear_layers(seed: int) -> None:
    wiring, layer, batch = shapes(seed)
    torch.manual_seed(seed)
    shape, first = wiring.layers[layer], wiring.geometry.column_start[layer]
    x, dy, bias = torch.randn(batch, shape.n_in), torch.randn(batch, shape.n_out), torch.randn(shape.n_out)
    theta = wiring.theta.detach().clone()
    if theta.numel():
        theta[0] = -0.5  # dormant
    with torch.no_grad():
        wiring.theta.copy_(theta)
    dense = wiring.layer_dense(layer)
    order = kernels.rows_in_order(wiring.packed_rows, wiring.colptr, first, shape.n_in, shape.n_out)
    y = kernels.linear_forward(x, theta, wiring.packed_rows, order, shape.n_out, bias)
    torch.testing.assert_close(y, x @ dense.t() + bias, rtol=1e-4, atol=1e-5)
    dx, dtheta = kernels.linear_backward(x, dy, theta, wiring.packed_rows, wiring.colptr, first, True, True)
    torch.testing.assert_close(dx, dy @ dense, rtol=1e-4, atol=1e-5)
    with ops.use("device"):
        wiring.forget()
        index = wiring.layer_index(layer)
        _, expected = ops.backend_of(theta).linear_backward(x, dy, theta, index, False, True)
    torch.testing.assert_close(dtheta, expected, rtol=1e-4, atol=1e-5)


def test_layers_take_them_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for asked in (False, True):
        monkeypatch.setattr(layers, "by_triton", lambda theta, asked=asked: asked)
        torch.manual_seed(0)
        with ops.use("device"):
            model = wb.sparsify(torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Tanh(), torch.nn.Linear(9, 4)), 0.4)
            y = model(torch.randn(5, 7))
            found.append([y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("count", [1, 255, 700])
def test_adam_and_death(count: int, noise: bool) -> None:
    torch.manual_seed(count)
    theta, grad, first, second = torch.rand(4, count).unbind()
    born, clock = torch.randint(0, 5, (count,), dtype=torch.int32), 9
    nu = philox.normals(3, 7, 2, count, torch.device("cpu")) if noise else None
    ours = [t.clone() for t in (theta, first, second)]
    dead = kernels.adam_and_death(ours[0], grad, ours[1], ours[2], born, clock, 0.4, (0.9, 0.999), 1e-8, 0.01, nu, 0.3)
    rule, state = Rule(RuleKind.ADAM, lr=0.4), State(exp_avg=first, exp_avg_sq=second, born=born, clock=clock)
    drifts = [DriftAndNoise(0, count, 0.01, 0.3 if noise else 0.0)]
    places = ops.Backend().update_(theta, grad, rule, state, drifts, 3, 7, 2, sign_bound=True, clamp=False)
    torch.testing.assert_close(ours, [theta, first, second], rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.nonzero(dead).view(-1), places)


def test_bytes_of_a_connection() -> None:
    """What forward, backward and Adam hold for each connection, counted from the tensors themselves: at most 40."""
    layer = wb.SparseLinear(64, 32, budget=500)
    method: Any = wb.DeepR(layer, torch.optim.Adam(layer.parameters()), l1=1e-3, newborn_moments="own")
    layer(torch.randn(3, 64)).sum().backward()
    method.step()
    wiring = layer.wiring
    _, columns, places = kernels.rows_in_order(wiring.packed_rows, wiring.colptr, 0, 64, 32)
    state = method.optimizer.state[wiring.theta]
    held = [wiring.theta, wiring.packed_rows, wiring.theta.grad, state["exp_avg"], state["exp_avg_sq"], *method.adapter.born, columns, places]
    found = sum(t.numel() * t.element_size() for t in held) / wiring.budget
    assert found == sum(kernels.BYTES.values()) == 32 <= 40
