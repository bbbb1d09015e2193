"""Any other optimiser: it moves θ itself, and what it keeps of a connection moves with the connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound import ops
from wirebound.ops.faults import not_finite
from wirebound.ops.rule import Rule, RuleKind
from wirebound.optim.carried import carried_tensors, inner_optimizers, starts
from wirebound.optim.pieces import layers_apart
from wirebound.optim.rule import OptimizerRule, Trained, plain_step

_ROWS = "keeps matrices with a row for each of the K connections"
# Optimisers that cannot be told by the shapes of their state, or only after it was made.
_REFUSED = {
    "LBFGS": "keeps one history for all parameters together",
    "SparseAdam": "takes sparse gradients, and those of θ are dense",
    "ZeroRedundancyOptimizer": "keeps the state of θ on one of the processes",
    **dict.fromkeys(("Shampoo", "ScalableShampoo", "DistributedShampoo", "SOAP"), _ROWS),
    "Kron": "keeps a preconditioner of all connections together",
    "DeMo": "sends a transform of all connections together",
}
_REFUSED_OPTIONS = {
    "differentiable": "a step that replaces connections has no derivative",
    "capturable": "a step that replaces connections cannot be part of a CUDA graph",
}


def require_by_element(optimizer: optim.Optimizer, bound: bool) -> None:
    """Refuse an optimiser that cannot train connections that move, as far as its class tells."""
    everything = (optimizer, *inner_optimizers(optimizer))
    names = [kind.__name__ for one in everything for kind in type(one).__mro__]
    reasons = [_REFUSED[name] for name in names if name in _REFUSED]
    options = (option for one in everything for group in one.param_groups for option in _REFUSED_OPTIONS if group.get(option))
    reasons += [f"has {option}=True, but {_REFUSED_OPTIONS[option]}" for option in options]
    if bound and any("ScheduleFree" in name for name in names):
        reasons.append(
            "evaluates at an average of θ, which leaves θ >= 0 where signs are bound; wb.SET, wb.RigL and wb.Fixed can take it"
        )
    if reasons:
        raise ValueError(
            f"optimizer (={type(optimizer).__name__}) must keep its state by element, so that it can move with "
            f"connections: it {reasons[0]}"
        )


class OtherRule(OptimizerRule):
    """An optimiser whose rule has no kernel."""

    kind = RuleKind.NONE
    options = ("lr",)

    def __init__(self, optimizer: optim.Optimizer) -> None:
        super().__init__(optimizer)
        self._found: dict[nn.Parameter, list[tuple[Tensor, float]]] = {}  # of the step that is being taken
        self._first: dict[str, float] | None = None

    def rule(self, group: Mapping[str, Any], lr: float, fresh: bool) -> Rule:
        return Rule(RuleKind.NONE, lr=lr)

    def keeps_state(self, group: Mapping[str, Any]) -> bool:
        return False

    def step(self, wirings: Sequence[Trained], step: int) -> None:
        """The step of all parameters; θ stays as it was where it would not be finite, or has state that cannot move."""
        before = [wiring.theta.detach().clone() for wiring in wirings]
        with layers_apart(self.optimizer, wirings):
            plain_step(self.optimizer)
        try:
            if not all(ops.backend_of(wiring.theta).all_finite(wiring.theta.detach()) for wiring in wirings):
                raise not_finite(step)
            groups = {id(p): group for group in self.optimizer.param_groups for p in group["params"]}
            self._found = {w.theta: self._find(w.theta, groups[id(w.theta)]) for w in wirings}
        except (ValueError, FloatingPointError):
            with torch.no_grad():
                for wiring, theta in zip(wirings, before, strict=True):
                    wiring.theta.copy_(theta)
            raise

    def carried(self, theta: nn.Parameter, group: Mapping[str, Any]) -> list[tuple[Tensor, float]]:
        return self._found.pop(theta, None) or self._find(theta, group)

    def _find(self, theta: nn.Parameter, group: Mapping[str, Any]) -> list[tuple[Tensor, float]]:
        tensors = list(carried_tensors(self.optimizer, theta))
        if tensors and self._first is None:
            self._first = starts(self.optimizer, group, theta)
        return [(value, (self._first or {}).get(name, 0.0)) for name, value in tensors]
