"""What is asked of every third-party model: all of it is compared with the dense twin that ``wb.to_dense`` makes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import wirebound as wb

Inputs = Mapping[str, Any] | Sequence[Any]


def tensors(output: Any) -> Iterator[Tensor]:
    """The floating-point tensors of whatever a model gives back."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for part in output.values():
            yield from tensors(part)
    elif isinstance(output, list | tuple):
        for part in output:
            yield from tensors(part)


def run(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """The outputs of a pass; what is drawn in it is the same for all models."""
    torch.manual_seed(7)
    return list(tensors(model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)))


def loss_of(outputs: list[Tensor]) -> Tensor:
    """Random numbers times the outputs: the squares of what a norm gives out would have no gradient."""
    draw = torch.Generator().manual_seed(11)
    return sum(((torch.randn(y.shape, generator=draw) * y).mean() for y in outputs), torch.zeros(()))


def with_theta(model: nn.Module, values: Sequence[Tensor]) -> dict[str, Tensor]:
    """The parameters of the dense twin of a copy with these θ."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for wiring, theta in zip(wb.wirings(model), values, strict=True):
            wiring.theta.copy_(theta)
    return {name: value.detach() for name, value in wb.to_dense(model).named_parameters()}


def zero_if_none(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def same_gradients(model: nn.Module, twin: nn.Module) -> int:
    """θ has the twin's gradient at every active position, and other parameters the twin's own; the number of the first."""
    thetas = [wiring.theta for wiring in wb.wirings(model)]
    assert all(theta.grad is not None and theta.grad.isfinite().all() for theta in thetas)
    ones = with_theta(model, [torch.ones_like(theta) for theta in thetas])
    none = with_theta(model, [torch.zeros_like(theta) for theta in thetas])
    above = with_theta(model, [theta.grad.clamp(min=0) for theta in thetas])
    below = with_theta(model, [theta.grad.neg().clamp(min=0) for theta in thetas])
    mine = dict(model.named_parameters())
    gradients = {name: zero_if_none(parameter) for name, parameter in twin.named_parameters()}
    rounding = 1e-4 * max(float(gradient.abs().max()) for gradient in gradients.values() if gradient.numel())  # float32, a whole pass deep
    compared = 0
    for name, wanted in gradients.items():
        active = ones[name] != none[name]
        if active.any():
            found = (above[name] - below[name])[active]
            torch.testing.assert_close(found, wanted[active], rtol=1e-3, atol=rounding, msg=lambda m, name=name: f"{name}: {m}")
            compared += int(active.sum())
        elif name in mine:
            found = zero_if_none(mine[name])
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=rounding, msg=lambda m, name=name: f"{name}: {m}")
    return compared


def ask(model: nn.Module, inputs: Inputs, **options: Any) -> nn.Module:
    """All questions to one model, which is returned as it trains on."""
    model = wb.sparsify(model.eval(), **{"connectivity": 0.1, **options})
    budget = sum(wiring.budget for wiring in wb.wirings(model))
    twin = wb.to_dense(model)

    outputs, expected = run(model, inputs), run(twin, inputs)
    assert outputs
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)
    loss_of(outputs).backward()
    loss_of(expected).backward()
    assert same_gradients(model, twin) == budget

    copied = copy.deepcopy(model)
    torch.testing.assert_close(run(copied, inputs), outputs, rtol=0, atol=0)

    model.train()
    rewiring = wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.02), l1=0.5)
    rewired = 0
    for _ in range(3):
        rewiring.zero_grad()
        loss_of(run(model, inputs)).backward()
        info = rewiring.step()
        rewired += info.rewired
        assert info.active == budget
        for wiring in wb.wirings(model):
            wiring.check()
            assert int((wiring.theta >= 0).sum()) == wiring.budget
    assert rewired > 0

    model.eval()
    outputs = run(model, inputs)
    torch.testing.assert_close(outputs, run(wb.to_dense(model), inputs), rtol=1e-3, atol=1e-4)
    assert not all(torch.equal(a, b) for a, b in zip(run(copied, inputs), outputs, strict=True))
    copied.load_state_dict(model.state_dict())
    torch.testing.assert_close(run(copied, inputs), outputs, rtol=0, atol=0)
    return model
