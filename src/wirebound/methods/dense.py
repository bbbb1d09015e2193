"""Dense training of the plain model, the upper bound that sparse methods are compared with."""

from torch import nn, optim

from wirebound.methods.attach import require_free
from wirebound.methods.method import Method, StepInfo
from wirebound.nn.sparse_layer import wirings
from wirebound.optim.rule import plain_step
from wirebound.wiring import LayerShape


class Dense(Method):
    """Ordinary training of a plain model; every connection of every matrix is active. Storage is dense by nature."""

    name = "dense"
    title = "Dense"
    sized_by = ()
    plain = True
    promises_budget = False
    rewires = False

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        require_free(optimizer)
        if wirings(model):
            raise ValueError("Dense needs a plain model, but this one has sparse layers: use Fixed, or wb.to_dense(model)")
        self.model, self.optimizer = model, optimizer
        matrices = ((name, p) for name, p in model.named_parameters() if p.dim() > 1)
        self.shapes = tuple(LayerShape(name, p.shape[0], p[0].numel()) for name, p in matrices)
        self.attach()

    def layer_positions(self) -> None:
        return None

    def layer_active(self) -> list[int]:
        return [shape.possible for shape in self.shapes]

    def take_step(self) -> StepInfo:
        plain_step(self.optimizer)
        self.steps += 1
        return self.report(self.layer_active(), [0] * len(self.shapes))
