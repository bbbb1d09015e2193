"""Magnitude pruning (Han et al. 2015) as the paper re-implements it: train, prune, train, prune, train.

    train for a third of all steps, with ℓ2
    in each matrix: w_k ← 0 for good, for all active k with |w_k| < q std(w over the active)
    ... and so once more, then train for the last third

q is ``quality``, ℓ2 the optimiser's ``weight_decay``, std that of the active weights around their mean, with N below the
line. A pruned weight stays exactly 0: it gets no gradient, and what the optimiser remembered of it is cleared. Added to the
paper's: with ``connectivity``, q is the one for all matrices that leaves the wanted count, c^(i/n) of all after the i-th
of n prunings. Storage is dense by nature, and every connection exists at the start.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound import schedule
from wirebound.methods.declaration import RunLength, Setting
from wirebound.methods.matrices import MatrixMethod, count_of
from wirebound.methods.method import StepInfo, load_rows
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.optim.rule import plain_step
from wirebound.wiring import settle_budget

Quality = float | Sequence[float] | Mapping[str, float]


def in_deviations(weight: Tensor, kept: Tensor) -> Tensor:
    """|w| in units of the standard deviation of the active weights; −1 where pruned."""
    active = weight[kept != 0]
    deviation = active.std(correction=0) if active.numel() else active.new_zeros(())
    scaled = weight.abs() / deviation if deviation > 0 else torch.full_like(weight, torch.inf)
    return scaled.masked_fill_(kept == 0, -1)


class MagnitudePruning(MatrixMethod):
    """Train, prune, train, prune, train.

    Args:
        model: a plain model, not sparsified.
        optimizer: any torch optimiser that keeps state by element; its ``weight_decay`` is the ℓ2 of the paper.
        total_steps: steps of the whole training; by default those of the paper's MNIST runs.
        quality: q, for all matrices or for each.
        prune_at: when to prune, as shares of ``total_steps``.
        connectivity, budget: the share or number of connections to end with, instead of quality.
        exclude: matrices that are not pruned, by patterns of their parameters' names; biases and the like never are.
    """

    name = "pruning"
    title = "Magnitude pruning"
    settings = (Setting("quality", "float | None", None, "q of the paper, instead of connectivity", least=0),)
    sized_by = ("connectivity", "budget", "quality")
    rewires = False
    zeros_learn = False  # what is pruned stays 0
    takes = ("connectivity", "budget", "exclude")

    @classmethod
    def arguments(cls, settings: Mapping[str, Any], length: RunLength) -> dict[str, Any]:
        if length.steps is None:
            raise ValueError(f"method (={cls.name!r}) must know how many steps the run has")
        return {"total_steps": length.steps, **super().arguments(settings, length)}

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, total_steps: int = 60_000, quality: Quality | None = None,
        prune_at: Sequence[float] = (1 / 3, 2 / 3), connectivity: float | None = None, budget: int | None = None,
        exclude: str | Iterable[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(model, optimizer, exclude)
        if total_steps < 1:
            raise ValueError(f"total_steps (={total_steps}) must be >= 1")
        if not prune_at or not all(0 < share < 1 for share in prune_at):
            raise ValueError(f"prune_at (={tuple(prune_at)}) must be shares of the training, each in (0, 1)")
        self.prune_steps = [max(1, round(share * total_steps)) for share in prune_at]
        if any(b <= a for a, b in itertools.pairwise(self.prune_steps)):
            raise ValueError(f"prune_at (={tuple(prune_at)}) must be rising, by a step of {total_steps} at least")
        possible = sum(shape.possible for shape in self.shapes)
        wanted = None if (connectivity, budget) == (None, None) else settle_budget(connectivity, budget, possible)
        if wanted is not None and quality is not None:
            raise ValueError(f"give quality (={quality}), or connectivity (={connectivity}) or budget (={budget})")
        # Connections after each pruning: the same share of them goes each time.
        self.targets, prunings = None, len(self.prune_steps)
        if wanted is not None:
            share = wanted / possible
            self.targets = [*(round(possible * share ** (i / prunings)) for i in range(1, prunings)), wanted]
        names = [shape.name for shape in self.shapes]
        self.quality = schedule.per_layer("quality", 1.0 if quality is None else quality, names)
        self._state = OptimizerAdapter(optimizer, self.matrices, ages=False)  # nobody is born: torch's own count is right
        # 1 or 0 for each weight, as numbers: a product with them is ten times quicker than a choice for each element.
        self.kept = [torch.ones_like(matrix.weight) for matrix in self.matrices]
        self._count()
        self.attach()

    @torch.no_grad()
    def take_step(self) -> StepInfo:
        pruned = list(zip(self.matrices, self.kept, strict=True)) if self.steps >= self.prune_steps[0] else []
        for matrix, kept in pruned:
            if matrix.grad is not None:
                matrix.grad.mul_(kept)
        plain_step(self.optimizer)
        self.steps += 1
        for matrix, kept in pruned:
            matrix.weight.mul_(kept)
        if self.steps in self.prune_steps:
            self._prune(self.prune_steps.index(self.steps))
        return self.report(self.layer_active(), [0] * len(self.matrices))

    def _prune(self, number: int) -> None:
        scaled = [in_deviations(matrix.weight, kept) for matrix, kept in zip(self.matrices, self.kept, strict=True)]
        if self.targets is None:
            pruned = [row < float(q) for row, q in zip(scaled, self.quality, strict=True) if not callable(q)]
        else:
            every = torch.cat(scaled)
            gone = torch.ones_like(every, dtype=torch.bool)
            # The largest of all matrices stay, among equals the first ones.
            gone[torch.argsort(every, descending=True, stable=True)[: self.targets[number]]] = False
            pruned = list(gone.split([row.numel() for row in scaled]))
        for i, (matrix, now) in enumerate(zip(self.matrices, pruned, strict=True)):
            self.kept[i].copy_(~now)
            matrix.weight.masked_fill_(now, 0)
            for moved, clean in self._state.carried(i, self._state.group(matrix)):
                moved.view(-1).masked_fill_(now, clean)
        self._count()

    def layer_active(self) -> list[int]:
        return list(self._active)

    def masks(self) -> list[Tensor]:
        return self.kept

    def _count(self) -> None:
        self._active = [count_of(kept) for kept in self.kept]

    def holds(self) -> list[tuple[str, list[Tensor], str]]:
        return [("which are kept", self.kept, "one number for each possible connection: dense by nature")]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "kept": [kept != 0 for kept in self.kept]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        load_rows("kept", self.kept, state["kept"])
        self._count()
