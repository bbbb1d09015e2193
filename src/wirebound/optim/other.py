"""Any other optimiser that keeps its state by element."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound.ops.rule import RuleKind
from wirebound.optim.carried import carried_tensors, starts
from wirebound.optim.rule import OptimizerRule, Trained, finite_step
from wirebound.wiring import Wiring

# Squared gradients, or their size, of which a newborn has none yet.
_SECOND = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "exp_inf", "sum")


class OtherRule(OptimizerRule):
    """Any other optimiser: it moves θ itself, and what it keeps of a connection moves with the connection."""

    kind = RuleKind.NONE
    options = ("lr",)

    def __init__(self, optimizer: optim.Optimizer) -> None:
        super().__init__(optimizer)
        self._found: dict[nn.Parameter, list[tuple[Tensor, float]]] = {}  # of the step that is being taken
        self._first: dict[str, float] | None = None

    def keeps_state(self, group: Mapping[str, Any]) -> bool:
        return False

    def step(self, wirings: Sequence[Trained], step: int) -> None:
        """The step of all parameters; θ stays as it was where it would not be finite, or has state that cannot move."""
        if self.newborns_by_layer:
            for wiring in (w for w in wirings if isinstance(w, Wiring) and w.theta.grad is not None):
                self._start_newborns(wiring)
        with finite_step(self.optimizer, wirings, step):
            groups = {id(p): group for group in self.optimizer.param_groups for p in group["params"]}
            self._found = {w.theta: self._find(w.theta, groups[id(w.theta)]) for w in wirings}

    @torch.no_grad()
    def _start_newborns(self, wiring: Wiring) -> None:
        """Give those who have no second moment yet that of their layer; with none, a first step could be any length."""
        kept = self.optimizer.state.get(wiring.theta, {})
        for name in (name for name in _SECOND if isinstance(kept.get(name), Tensor)):
            for layer, (first, last) in enumerate(itertools.pairwise(wiring.bounds)):
                part = kept[name][first:last]
                new = part == (self._first or {}).get(name, 0.0)
                if part.numel() and not new.all() and not wiring.is_frozen(layer):
                    part.masked_fill_(new, float(part[~new].mean()))

    def carried(self, theta: nn.Parameter, group: Mapping[str, Any]) -> list[tuple[Tensor, float]]:
        return self._found.pop(theta, None) or self._find(theta, group)

    def _find(self, theta: nn.Parameter, group: Mapping[str, Any]) -> list[tuple[Tensor, float]]:
        tensors = list(carried_tensors(self.optimizer, theta))
        if tensors and self._first is None:
            self._first = starts(self.optimizer, group, theta)
        return [(value, (self._first or {}).get(name, 0.0)) for name, value in tensors]
