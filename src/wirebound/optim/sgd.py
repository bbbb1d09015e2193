"""SGD, with momentum and Nesterov's: the paper's own optimiser."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from wirebound.ops.rule import Rule, RuleKind, State
from wirebound.optim.rule import OptimizerRule


class SGDRule(OptimizerRule):
    """g ← ∂E/∂θ + λ θ,  b ← μ b + (1 − τ) g (at first b ← g),  θ ← θ − η b, with Nesterov θ − η (g + μ b)."""

    kind = RuleKind.SGD
    options = ("lr", "momentum", "dampening", "nesterov", "weight_decay", "maximize")

    def is_fresh(self, group: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
        return bool(group["momentum"]) and state.get("momentum_buffer") is None

    def rule(self, group: Mapping[str, Any], lr: float, fresh: bool) -> Rule:
        numbers: dict[str, Any] = {name: float(group[name]) for name in ("momentum", "dampening", "weight_decay")}
        return Rule(self.kind, lr, nesterov=group["nesterov"], maximize=group["maximize"], fresh=fresh, **numbers)

    def keeps_state(self, group: Mapping[str, Any]) -> bool:
        return bool(group["momentum"])

    def make_state(self, parameter: Tensor, group: Mapping[str, Any], state: dict[str, Any]) -> None:
        if self.is_fresh(group, state):
            state["momentum_buffer"] = torch.zeros_like(parameter, requires_grad=False)

    def state(self, kept: Mapping[str, Any], born: Tensor | None, clock: int) -> State:
        return State(momentum=kept["momentum_buffer"])
