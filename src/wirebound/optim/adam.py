"""Adam and AdamW.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²
    θ ← θ − η m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε)     t: how often this connection has been moved since its birth

ℓ2 is added to the gradient g by Adam, and θ ← (1 − η λ) θ comes first in AdamW.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, optim

from wirebound.ops.rule import Rule, RuleKind, State
from wirebound.optim.rule import OptimizerRule, of_optimizers


@of_optimizers(optim.Adam, optim.AdamW)
class AdamRule(OptimizerRule):
    """State: ``exp_avg``, ``exp_avg_sq``, with amsgrad ``max_exp_avg_sq``, and the count ``step``."""

    kind = RuleKind.ADAM
    options = ("lr", "weight_decay", "betas", "eps", "maximize", "decoupled_weight_decay")
    has_ages = True

    def rule(self, group: Mapping[str, Any], lr: float, fresh: bool) -> Rule:
        beta1, beta2 = group["betas"]
        return Rule(
            RuleKind.ADAM,
            lr=lr,
            weight_decay=float(group["weight_decay"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            decoupled=group.get("decoupled_weight_decay", isinstance(self.optimizer, optim.AdamW)),
            maximize=group["maximize"],
        )

    def make_state(self, parameter: Tensor, group: Mapping[str, Any], state: dict[str, Any]) -> None:
        if "step" not in state:
            moments = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))
            made = {name: torch.zeros_like(parameter, requires_grad=False) for name in moments}
            state.update(step=torch.tensor(0.0, device="cpu"), **made)  # all at once: an interrupt may come in between

    def state(self, kept: Mapping[str, Any], born: Tensor | None, clock: int) -> State:
        moments = (kept["exp_avg"], kept["exp_avg_sq"], kept.get("max_exp_avg_sq"))
        return State(None, *moments, born=born, clock=clock)
