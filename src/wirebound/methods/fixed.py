"""Fixed random connectivity: the comparator of the paper that never rewires.

Ordinary training of the K weights that the wiring started with. Weights may cross zero, as under ordinary SGD, so
signs are not bound; where signs belong to neurons (``Constraints.dale``), weights stop at zero instead.
"""

from __future__ import annotations

from torch import nn, optim

from wirebound import ops
from wirebound.methods.method import StepInfo, WiringMethod, leave_valid, require_finite
from wirebound.ops.faults import not_finite
from wirebound.optim.pieces import layers_apart


class Fixed(WiringMethod):
    """Train a sparsified model without rewiring.

    Args:
        model: a model with sparse layers (``wb.sparsify``).
        optimizer: any torch optimiser that holds the model's parameters.
    """

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        self.take(model, optimizer)
        self.steps = 0
        for wiring in self.wirings:
            wiring.release_signs_()
        self.claim()

    def step(self) -> StepInfo:
        if not self.may_step():
            return self.no_step()
        require_finite(self.wirings, self.steps + 1)
        before = [wiring.theta.detach().clone() for wiring in self.wirings]
        try:
            with layers_apart(self.optimizer, self.wirings):
                self.optimizer.step()
            leave_valid(self.wirings)
        except BaseException:
            leave_valid(self.wirings)
            raise
        if not all(ops.all_finite(wiring.theta.detach()) for wiring in self.wirings):
            for wiring, theta in zip(self.wirings, before, strict=True):
                wiring.theta.detach().copy_(theta)
            raise not_finite(self.steps + 1)
        self.steps += 1
        active = [n for wiring in self.wirings for n in wiring.layer_active]
        budget = sum(w.budget for w in self.wirings)
        return StepInfo(self.steps, sum(active), budget, 0, self.shapes, active, [0] * len(active))
