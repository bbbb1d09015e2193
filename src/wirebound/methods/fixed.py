"""Fixed random connectivity: the comparator of the paper that never rewires.

Ordinary training of the K weights that the wiring started with. Weights may cross zero, as under ordinary SGD, so
signs are not bound; where signs belong to neurons (``Constraints.dale``), weights stop at zero instead.
"""

from __future__ import annotations

from torch import nn, optim

from wirebound import ops
from wirebound.methods.method import WiringMethod, leave_valid
from wirebound.ops.faults import not_finite
from wirebound.optim.pieces import layers_apart
from wirebound.optim.rule import plain_step


class Fixed(WiringMethod):
    """Train a sparsified model without rewiring.

    Args:
        model: a model with sparse layers (``wb.sparsify``).
        optimizer: any torch optimiser that holds the model's parameters.
    """

    name = "fixed"
    title = "Fixed connectivity"

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        self.take(model, optimizer)
        for wiring in self.wirings:
            wiring.release_signs_()
        self.attach()

    def train(self, step: int) -> tuple[list[int], list[int]]:
        before = [wiring.theta.detach().clone() for wiring in self.wirings]
        with layers_apart(self.optimizer, self.wirings):
            plain_step(self.optimizer)
        leave_valid(self.wirings)
        if not all(ops.backend_of(wiring.theta).all_finite(wiring.theta.detach()) for wiring in self.wirings):
            for wiring, theta in zip(self.wirings, before, strict=True):
                wiring.theta.copy_(theta)
            raise not_finite(step)
        return [n for wiring in self.wirings for n in wiring.layer_active], [0] * len(self.shapes)
