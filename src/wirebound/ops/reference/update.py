"""One step of Algorithm 1 up to the deaths, in plain torch.

    θ ← optimiser(θ, ∂E/∂θ)            torch's own formulas; Adam's bias correction by the connection's own age
    θ ← θ − ηα + √(2ηT) ν              the drift, per layer
    dead: θ < 0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.faults import not_finite
from wirebound.ops.rule import DriftAndNoise, Rule, RuleKind, State


def _sgd_(theta: Tensor, grad: Tensor, rule: Rule, state: State) -> None:
    direction = grad + rule.weight_decay * theta if rule.weight_decay else grad
    if state.momentum is not None:
        if rule.fresh:
            state.momentum.copy_(direction)
        else:
            state.momentum.mul_(rule.momentum).add_(direction, alpha=1 - rule.dampening)
        direction = direction + rule.momentum * state.momentum if rule.nesterov else state.momentum
    theta.add_(direction, alpha=-rule.lr)


def _adam_(theta: Tensor, grad: Tensor, rule: Rule, state: State) -> None:
    assert state.exp_avg is not None
    assert state.exp_avg_sq is not None
    assert state.born is not None
    if rule.weight_decay:
        if rule.decoupled:
            theta.mul_(1 - rule.lr * rule.weight_decay)
        else:
            grad = grad + rule.weight_decay * theta
    state.exp_avg.lerp_(grad, 1 - rule.beta1)
    state.exp_avg_sq.mul_(rule.beta2).addcmul_(grad, grad, value=1 - rule.beta2)
    second = state.exp_avg_sq
    if state.max_exp_avg_sq is not None:
        torch.maximum(state.max_exp_avg_sq, second, out=state.max_exp_avg_sq)
        second = state.max_exp_avg_sq
    # A connection that was born yesterday has moments that are one step old, whatever the optimiser's own count says.
    age = (state.clock - state.born).to(torch.float64)
    correction1 = (1 - rule.beta1**age).to(theta.dtype)
    correction2 = (1 - rule.beta2**age).sqrt().to(theta.dtype)
    denominator = second.sqrt() / correction2 + rule.eps
    theta.addcdiv_(state.exp_avg / correction1, denominator, value=-rule.lr)


_RULES = {RuleKind.SGD: _sgd_, RuleKind.ADAM: _adam_}


def _pieces(rule: Rule, drifts: Sequence[DriftAndNoise], count: int) -> Iterator[tuple[int, int, Rule]]:
    """Which connections move by which rule: all by one, or each drift that has rates of its own by its own."""
    at = 0
    for drift in drifts:
        if not drift.has_rates:
            continue
        if at < drift.first:
            yield at, drift.first, rule
        if not drift.frozen:
            lr, decay = rule.lr * drift.lr_factor, rule.weight_decay * drift.decay_factor
            yield drift.first, drift.last, replace(rule, lr=lr, weight_decay=decay)
        at = drift.last
    if at < count:
        yield at, count, rule


def _slice(state: State, first: int, last: int) -> State:
    """The optimiser's tensors for some of the connections, sharing their memory."""
    moments = ((name, value) for name, value in vars(state).items() if isinstance(value, Tensor))
    parts: dict[str, Any] = {name: value[first:last] for name, value in moments}
    return replace(state, **parts)


class ReferenceUpdate:
    def update_(
        self, theta: Tensor, grad: Tensor | None, rule: Rule, state: State, drifts: Sequence[DriftAndNoise],
        seed: int, stream: int, step: int, *, sign_bound: bool, clamp: bool,
    ) -> Tensor:  # fmt: skip
        """Move θ in place; the sorted indices of the connections that died, θ < 0.

        ``clamp``: a step without rewiring, θ stops at 0 instead of dying. Not ``sign_bound``: θ may take any sign,
        nothing drifts and nothing dies.
        """
        if not torch.isfinite(theta).all():
            raise not_finite(step)
        if rule.kind != RuleKind.NONE:
            assert grad is not None
            if not torch.isfinite(grad).all():  # before anything is written
                raise not_finite(step)
            grad = -grad if rule.maximize else grad
            for first, last, own in _pieces(rule, drifts, theta.numel()):
                _RULES[rule.kind](theta[first:last], grad[first:last], own, _slice(state, first, last))
        for drift in drifts if sign_bound else ():
            part = theta[drift.first : drift.last]
            if drift.frozen:
                continue
            if drift.shrink:
                part.sub_(drift.shrink)
            if drift.noise_std:
                nu = philox.normals(seed, stream, step, part.numel(), theta.device, first=drift.first)
                part.add_(nu.to(theta.dtype), alpha=drift.noise_std)
        if not torch.isfinite(theta).all():
            raise not_finite(step)
        if sign_bound and not clamp:
            return torch.nonzero(theta < 0).view(-1)
        if sign_bound:
            theta.clamp_(min=0)
        return torch.empty(0, dtype=torch.int64, device=theta.device)
