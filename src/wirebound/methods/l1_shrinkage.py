"""ℓ1-shrinkage (Tibshirani 1996; Collins & Kohli 2014) as the paper compares it: dense training that zeroes weights.

    w ← w − η ∂E/∂w                              the optimiser's own step
    w ← relu(|w| − η α) sign(w)                  after every step

η is the optimiser's current learning rate, α ``l1``. A weight of 0 keeps its gradient and may leave 0 again; what the
optimiser remembers of it is left alone, also under Adam, as in the paper. Coming back is not counted as rewiring. Nothing
is cut off at the end: the paper has no threshold either. Storage is dense, and every connection exists at the start.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import nn, optim

from wirebound import schedule
from wirebound.methods.declaration import L1
from wirebound.methods.matrices import MatrixMethod
from wirebound.methods.method import StepInfo
from wirebound.optim.rule import plain_step
from wirebound.schedule import Rate

BEST_L1 = 10**-4.5  # of the paper's α = 10^(−n/2) for MNIST, n = 4 .. 12: the optimum was n = 9


class L1Shrinkage(MatrixMethod):
    """Dense training with the ℓ1-shrinkage operator after every step.

    Args:
        model: a plain model, not sparsified.
        optimizer: any torch optimiser that holds the model's parameters.
        l1: α. A number, one for each matrix, or a schedule.
        exclude: matrices that are not shrunk, by patterns of their parameters' names; biases and the like never are.
    """

    name = "l1-shrinkage"
    title = "ℓ1-shrinkage"
    settings = (L1.with_default(BEST_L1),)
    sized_by = ()
    takes = ("exclude",)
    rewires = False
    counts_newborns = False  # weights come back from 0 unseen

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, l1: Rate = BEST_L1, exclude: str | Iterable[str] = ()
    ) -> None:
        super().__init__(model, optimizer, exclude)
        self.l1 = schedule.per_layer("l1", l1, [shape.name for shape in self.shapes])
        self.attach()

    @torch.no_grad()
    def take_step(self) -> StepInfo:
        plain_step(self.optimizer)
        self.steps += 1
        for matrix, rate in zip(self.matrices, self.l1, strict=True):
            if matrix.theta.grad is not None:
                lr = self.lr(matrix)
                matrix.weight.copy_(F.softshrink(matrix.weight, lr * schedule.at("l1", rate, self.steps, lr)))
        return self.report(self.layer_active(), [0] * len(self.matrices))
