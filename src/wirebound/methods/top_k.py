"""Top-k by magnitude after every step, as weight-sparse transformers are trained (Gao et al. 2025, arXiv 2511.13653).

    w ← the optimiser's own step, on all weights, with dense gradients and moments
    in each matrix: all but the k largest |w| ← 0                      after every step

A weight that was set to 0 keeps its gradient and its moments, and comes back as soon as one step makes it larger than the
smallest that was kept; such returns are not counted as rewiring. Each matrix keeps its own k, its share of the budget by
``allocation``: exactly K weights are not 0 after every step, from the start on. Differs from theirs in that K is not annealed
from all weights down to the wanted number, and in that no neuron is granted a least number of weights. Storage is dense.
"""

from collections.abc import Iterable

import torch
from torch import nn, optim

from wirebound.methods.matrices import MatrixMethod
from wirebound.methods.method import StepInfo
from wirebound.optim.rule import plain_step
from wirebound.wiring import Allocation, allocate


class TopK(MatrixMethod):
    """Dense training that keeps the largest weights of each matrix and zeroes the others, after every step.

    Args:
        model: a plain model, not sparsified.
        optimizer: any torch optimiser that holds the model's parameters.
        connectivity, budget: the share or number of weights that are not 0 after each step.
        allocation: how the budget is shared out among the matrices, as in ``sparsify``.
        exclude: matrices that keep all weights, by patterns of their parameters' names; biases and the like always do.
    """

    name = "top-k"
    title = "Top-k"
    rewires = False
    counts_newborns = False  # weights come back from 0 unseen
    takes = ("connectivity", "budget", "allocation", "exclude")

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, connectivity: float | None = None, budget: int | None = None,
        allocation: Allocation = "uniform", exclude: str | Iterable[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(model, optimizer, exclude)
        names, sizes = [s.name for s in self.shapes], [(s.n_out, s.n_in) for s in self.shapes]
        self.kept_counts = allocate(names, sizes, allocation, connectivity, budget)
        self._cut()
        self.attach()

    @torch.no_grad()
    def _cut(self) -> None:
        for matrix, count in zip(self.matrices, self.kept_counts, strict=True):
            weight, size = matrix.weight, matrix.budget
            if count < size:
                weight[weight.abs().topk(size - count, largest=False, sorted=False).indices] = 0

    def take_step(self) -> StepInfo:
        plain_step(self.optimizer)
        self.steps += 1
        self._cut()
        return self.report(self.layer_active(), [0] * len(self.matrices))
