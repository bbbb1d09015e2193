"""Adam and AdamW, which correct their bias by the age of each connection."""

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, optim

from wirebound.ops.rule import Rule, RuleKind, State
from wirebound.optim.rule import OptimizerRule
from wirebound.wiring import Wiring, mean_of


class AdamRule(OptimizerRule):
    """Adam and AdamW; t counts how often this connection has been moved since its birth.

        m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²
        θ ← θ − η m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε)

    ℓ2 is added to the gradient g by Adam, and θ ← (1 − η λ) θ comes first in AdamW.
    """

    kind = RuleKind.ADAM
    options = ("lr", "weight_decay", "betas", "eps", "maximize", "decoupled_weight_decay")
    has_ages = True

    def rule(self, group: Mapping[str, Any], lr: float, fresh: bool) -> Rule:
        numbers: dict[str, Any] = {name: float(group[name]) for name in ("weight_decay", "eps")}
        numbers |= zip(("beta1", "beta2"), map(float, group["betas"]), strict=True)
        decoupled = group.get("decoupled_weight_decay", isinstance(self.optimizer, optim.AdamW))
        return Rule(self.kind, lr, decoupled=decoupled, maximize=group["maximize"], **numbers)

    def make_state(self, parameter: Tensor, group: Mapping[str, Any], state: dict[str, Any]) -> None:
        if "step" not in state:
            moments = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))
            made = {name: torch.zeros_like(parameter, requires_grad=False) for name in moments}
            state.update(step=torch.tensor(0.0, device="cpu"), **made)  # all at once: an interrupt may come in between

    def second_moments(self, wiring: Wiring, group: Mapping[str, Any], clock: int) -> list[float]:
        second = self.optimizer.state.get(wiring.theta, {}).get("exp_avg_sq")
        if second is None or not clock:
            return super().second_moments(wiring, group, clock)
        correction = 1 - float(group["betas"][1]) ** clock
        parts = (second[a:b] for a, b in itertools.pairwise(wiring.bounds))
        # With sparse inputs most connections may still wait for their first gradient.
        had = (part[part > 0] if layer in (wiring.seen or ()) else part for layer, part in enumerate(parts))
        return [mean_of(part) / correction for part in had]

    def state(self, kept: Mapping[str, Any], born: Tensor | None, clock: int) -> State:
        return State(None, kept["exp_avg"], kept["exp_avg_sq"], kept.get("max_exp_avg_sq"), born, clock)
