"""Fixed random connectivity: the comparator of the paper that never rewires.

Ordinary training of the K weights that the wiring started with. Weights may cross zero, as under ordinary SGD, so
signs are not bound; where signs belong to neurons (``Constraints.dale``), weights stop at zero instead.
"""

from __future__ import annotations

from torch import nn, optim

from wirebound.methods.method import Method, StepInfo, require_finite, require_parameters, require_wirings


class Fixed(Method):
    """Train a sparsified model without rewiring.

    Args:
        model: a model with sparse layers (``wb.sparsify``).
        optimizer: any torch optimiser that holds the model's parameters.
    """

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.wirings = require_wirings("Fixed", model)
        require_parameters(optimizer, self.wirings)
        self.shapes = tuple(layer for wiring in self.wirings for layer in wiring.layers)
        self.steps = 0
        for wiring in self.wirings:
            wiring.release_signs_()

    def step(self) -> StepInfo:
        require_finite(self.wirings, self.steps + 1)
        self.optimizer.step()
        for wiring in self.wirings:
            if wiring.sign_bound:
                wiring.theta.detach().clamp_(min=0)
        self.steps += 1
        active = [n for wiring in self.wirings for n in wiring.layer_active]
        budget = sum(w.budget for w in self.wirings)
        return StepInfo(self.steps, sum(active), budget, 0, self.shapes, active, [0] * len(active))
