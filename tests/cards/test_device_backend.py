"""The device backend on the CPU: the same layers, and the same wiring as the kernels find, step by step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_kinds_are_kept import MAKERS, Holder
from torch import Tensor, nn

import wirebound as wb
from wirebound import ops
from wirebound.ops import philox
from wirebound.ops.device import fixed
from wirebound.ops.device.products import without_csr
from wirebound.ops.philox import Stream, stream_of

SGD: Callable[..., Any] = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
ADAM: Callable[..., Any] = lambda p: torch.optim.Adam(p, lr=0.02)  # noqa: E731
METHODS: dict[str, Callable[..., Any]] = {
    "DeepR": lambda m, o: wb.DeepR(m, o, l1=1e-2, temperature=1e-4),
    "DeepR, auto": lambda m, o: wb.DeepR(m, o),
    "DeepR, uniform": lambda m, o: wb.DeepR(m, o, l1=1e-2, newborns="uniform"),
    "DeepR, seldom": lambda m, o: wb.DeepR(m, o, l1=1e-2, rewire_every=4),
    "DeepR, rates": lambda m, o: wb.DeepR(m, o, l1=[1e-2, 2e-2], noise=[1e-3, 2e-2]),
    "Fixed": lambda m, o: wb.Fixed(m, o),
    "DeepR, by gradient": lambda m, o: wb.DeepR(m, o, l1=1e-2, births="gradient"),
    "DeepR, along paths": lambda m, o: wb.DeepR(m, o, l1=1e-2, births="paths"),
    "GSE": lambda m, o: wb.GSE(m, o, every=3),
    "CHT": lambda m, o: wb.CHT(m, o, every=3),
    "SET": lambda m, o: wb.SET(m, o, every=3, newborn_scale=0.5),
    "SET, global": lambda m, o: wb.SET(m, o, every=3, scope="global"),
    "RigL": lambda m, o: wb.RigL(m, o, every=3),
    "RigL, global": lambda m, o: wb.RigL(m, o, every=3, scope="global"),
    "random": lambda m, o: wb.Evolve(
        m, o, drop=wb.drop.Random(), grow=wb.grow.Random(by_share=True), when=wb.when.Every(2, 0.3), scope="global"
    ),
    "by sign": lambda m, o: wb.Evolve(m, o, drop=wb.drop.SignFlips(), grow=wb.grow.Random(), when=wb.when.Every(2, 0.3)),
    "ConstantRate": lambda m, o: wb.ConstantRate(m, o, rate=0.01, l1=1e-2),
}
PLAIN: dict[str, Callable[..., Any]] = {
    "SoftDeepR": lambda m, o: wb.SoftDeepR(m, o, l1=1e-3, connectivity=0.3),
    "L1Shrinkage": lambda m, o: wb.L1Shrinkage(m, o, l1=1e-2),
    "MagnitudePruning": lambda m, o: wb.MagnitudePruning(m, o, total_steps=12, connectivity=0.2),
}


@pytest.mark.parametrize("csr", [True, False], ids=["csr", "gathered"])
@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
def test_layers_compute_the_same(kind: type[nn.Module], csr: bool) -> None:
    torch.manual_seed(0)
    model = wb.sparsify(Holder(kind), 0.4)
    x = torch.randn(MAKERS[kind][1], requires_grad=True)
    found = []
    for name in ("reference", "device"):
        with ops.use(name), nullcontext() if csr else without_csr():
            for wiring in wb.wirings(model):
                wiring.forget()
            y = model(x)
            found.append([y, *torch.autograd.grad(y.square().sum(), (x, *model.parameters()))])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def train(backend: str, make: Callable[..., Any], optimizer: Any, connectivity: float | None, scope: str, steps: int) -> Any:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 6))
    x, y = torch.randn(19, 12), torch.randint(0, 6, (19,))
    with ops.use(backend):
        model = plain if connectivity is None else wb.sparsify(plain, connectivity, scope=scope, seed=4)
        method = make(model, optimizer(model.parameters()))
        counts, positions = [], []
        for _ in range(steps):
            F.cross_entropy(model(x), y).backward()
            info = method.step()
            method.zero_grad()
            counts.append((info.active, info.rewired))
            positions.append(method.layer_positions())
            for wiring in wb.wirings(model):
                wiring.check()
    return counts, positions, [p.detach() for p in model.parameters()]


def assert_the_same(*arguments: Any) -> int:
    """Counts and positions of every step are equal, parameters up to rounding; how many were born."""
    if not ops.native_available():
        pytest.skip("the native kernels were not built")
    (counts, positions, ours), (others, places, theirs) = (train(name, *arguments) for name in ("native", "device"))
    assert counts == others
    for step, (one, other) in enumerate(zip(positions, places, strict=True)):
        for a, b in zip(one, other, strict=True):
            assert torch.equal(a, b), f"step {step}"
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    return sum(born for _, born in counts)


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("method", METHODS)
def test_methods_find_the_same_wiring(method: str, optimizer: Any) -> None:
    born = assert_the_same(METHODS[method], optimizer, 0.3, "global", 15)
    assert (born > 0) is (method != "Fixed")


@pytest.mark.parametrize("method", PLAIN)
def test_methods_on_plain_models(method: str) -> None:
    assert_the_same(PLAIN[method], ADAM, None, "", 15)


@pytest.mark.parametrize("newborns", ["share", "uniform"])
@pytest.mark.parametrize("connectivity", [0.05, 0.8, 0.95])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_budgets_of_all_densities(connectivity: float, scope: str, newborns: str) -> None:
    make = lambda m, o: wb.DeepR(m, o, l1=1e-2, temperature=1e-3, newborns=newborns)  # noqa: E731
    assert assert_the_same(make, SGD, connectivity, scope, 12) > 0


@pytest.mark.parametrize(("n", "k"), [(10, 0), (10, 3), (10, 5), (10, 8), (10, 10), (1000, 40), (1000, 900), (10**12, 200)])
def test_samples_are_those_of_the_reference(n: int, k: int) -> None:
    name = (7, stream_of(Stream.DROP, 3, layer=1), 12, torch.device("cpu"))
    with ops.use("device"):
        assert torch.equal(ops.backend_on(torch.device("cpu")).sample_sorted(n, k, *name), philox.sample_sorted(n, k, *name))


def test_a_step_that_is_not_finite_is_not_taken_and_said_when_asked() -> None:
    with ops.use("device"):
        layer = wb.SparseLinear(5, 4, budget=8)
        rewiring = wb.DeepR(layer, torch.optim.SGD(layer.parameters(), lr=0.1), l1=1e-2)
        before = [t.clone() for t in (layer.wiring.theta.detach(), layer.wiring.packed_rows, layer.wiring.colptr)]
        layer.wiring.theta.grad = torch.full((8,), float("nan"))
        info = rewiring.step()
        after = [layer.wiring.theta.detach(), layer.wiring.packed_rows, layer.wiring.colptr]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        with pytest.raises(FloatingPointError, match="step 1 was not taken"):
            _ = info.active


def test_counts_stay_on_the_device_until_they_are_read() -> None:
    with ops.use("device"):
        layer = wb.SparseLinear(5, 4, budget=8)
        rewiring = wb.DeepR(layer, torch.optim.SGD(layer.parameters(), lr=0.1), l1=1e-2)
        layer(torch.ones(3, 5)).sum().backward()
        info = rewiring.step()
    assert isinstance(tuple(info)[5][0], Tensor)
    assert info.active == info.budget == 8
    assert f"active={info.active}" in repr(info)
    assert info.layers[0].active == 8


def test_selections_of_known_sizes() -> None:
    values = torch.tensor([3.0, -1.0, 2.0, -1.0, 0.5, -4.0])
    assert fixed.smallest(values, 3).tolist() == [1, 3, 5]
    assert fixed.smallest_of_each(values.abs(), values < 0, torch.tensor(1), 3).tolist() == [1, 2, 4]
    mask = torch.tensor([True, False, True, True])
    assert fixed.front(mask, torch.tensor([5, 6, 7, 8]), 4).tolist() == [5, 7, 8, fixed.NOTHING]
    assert fixed.places_of(mask, 3).tolist() == [0, 2, 3]
