"""SGD, with or without momentum.

    g ← ∂E/∂θ + λ θ                         λ: ``weight_decay``
    b ← μ b + (1 − τ) g, at first b ← g     μ: ``momentum``, τ: ``dampening``
    θ ← θ − η b, with Nesterov θ − η (g + μ b)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, optim

from wirebound.ops.rule import Rule, RuleKind, State
from wirebound.optim.rule import OptimizerRule, of_optimizers


@of_optimizers(optim.SGD)
class SGDRule(OptimizerRule):
    """State: ``momentum_buffer`` where there is momentum."""

    kind = RuleKind.SGD
    options = ("lr", "momentum", "dampening", "nesterov", "weight_decay", "maximize")

    def is_fresh(self, group: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
        return bool(group["momentum"]) and state.get("momentum_buffer") is None

    def rule(self, group: Mapping[str, Any], lr: float, fresh: bool) -> Rule:
        return Rule(
            RuleKind.SGD,
            lr=lr,
            momentum=float(group["momentum"]),
            dampening=float(group["dampening"]),
            nesterov=group["nesterov"],
            weight_decay=float(group["weight_decay"]),
            maximize=group["maximize"],
            fresh=fresh,
        )

    def keeps_state(self, group: Mapping[str, Any]) -> bool:
        return bool(group["momentum"])

    def make_state(self, parameter: Tensor, group: Mapping[str, Any], state: dict[str, Any]) -> None:
        if group["momentum"] and state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(parameter, requires_grad=False)

    def state(self, kept: Mapping[str, Any], born: Tensor | None, clock: int) -> State:
        return State(momentum=kept["momentum_buffer"])
