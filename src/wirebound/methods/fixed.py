"""Fixed random connectivity: the comparator of the paper that never rewires.

Ordinary training of the K weights that the wiring started with. Weights may cross zero, as under ordinary SGD, so
signs are not bound; where signs belong to neurons (``Constraints.dale``), weights stop at zero instead.
"""

from torch import nn, optim

from wirebound.methods.method import WiringMethod, leave_valid
from wirebound.optim.rule import finite_step


class Fixed(WiringMethod):
    """Train a sparsified model (``wb.sparsify``) without rewiring, with any torch optimiser that holds its parameters."""

    name = "fixed"
    title = "Fixed connectivity"
    rewires = False

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        self.take(model, optimizer)
        for wiring in self.wirings:
            wiring.release_signs_()
        self.attach()

    def train(self, step: int) -> tuple[list[int], list[int]]:
        with finite_step(self.optimizer, self.wirings, step):
            leave_valid(self.wirings)
        return [n for wiring in self.wirings for n in wiring.layer_active], [0] * len(self.shapes)
