"""Dense training of the plain model, the upper bound that sparse methods are compared with."""

from __future__ import annotations

from torch import nn, optim

from wirebound.methods.method import Method, StepInfo
from wirebound.nn.sparse_layer import wirings
from wirebound.wiring import LayerShape


class Dense(Method):
    """Ordinary training; every connection of every matrix is active. Storage is dense by nature.

    Args:
        model: a plain model, not sparsified.
        optimizer: any torch optimiser.
    """

    plain = True
    promises_budget = False

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        if wirings(model):
            raise ValueError("Dense needs a plain model, but this one has sparse layers: use Fixed, or wb.to_dense(model)")
        self.model, self.optimizer = model, optimizer
        self.shapes = tuple(
            LayerShape(name, p.shape[0], p[0].numel()) for name, p in model.named_parameters() if p.dim() > 1
        )
        self.steps = 0

    def layer_positions(self) -> None:
        return None

    def layer_active(self) -> list[int]:
        return [shape.possible for shape in self.shapes]

    def step(self) -> StepInfo:
        self.optimizer.step()
        self.steps += 1
        active = self.layer_active()
        return StepInfo(self.steps, sum(active), None, 0, self.shapes, active, [0] * len(active))
