"""One linear layer's work: its sizes, its inputs, and the answers that every contender must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from wirebound.nn.linear import SparseLinear
from wirebound.ops.layout import LayerIndex, rows_of, signs_of
from wirebound_lab.bench.results import WrongAnswerError

_TOLERANCE = 1e-4  # of the largest number: sums of a few thousand float32 products in another order


@dataclass(frozen=True)
class Workload:
    """A layer and a batch. Work: forward, gradient to the input, gradient at the active positions."""

    n_in: int
    n_out: int
    connectivity: float
    batch: int

    @property
    def label(self) -> str:
        return f"{self.n_in}→{self.n_out}, {100 * self.connectivity:g} %, B {self.batch}"


@dataclass(frozen=True)
class Answer:
    """Output, gradient to the input [batch, n], and gradient of the weight at each connection."""

    y: Tensor
    dx: Tensor
    dw: Tensor


class Problem:
    """The tensors of a workload, the same for all contenders; activations are row-major as torch has them."""

    def __init__(self, workload: Workload, budget: int | None = None, seed: int = 0) -> None:
        self.workload = workload
        connectivity = None if budget is not None else workload.connectivity
        self.layer = SparseLinear(
            workload.n_in, workload.n_out, bias=False, connectivity=connectivity, budget=budget, seed=seed
        )
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(workload.batch, workload.n_in, generator=generator)
        self.dy = torch.randn(workload.batch, workload.n_out, generator=generator)

    @property
    def budget(self) -> int:
        return self.layer.wiring.budget

    @property
    def theta(self) -> Tensor:
        return self.layer.wiring.theta.detach()

    @property
    def index(self) -> LayerIndex:
        return self.layer.wiring.layer_index(0)

    def signs(self) -> Tensor:
        return signs_of(self.layer.wiring.packed_rows, self.theta.dtype)

    def places(self) -> tuple[Tensor, Tensor]:
        """Row and column of each connection."""
        code, colptr = self.layer.wiring.packed_rows, self.layer.wiring.colptr
        counts = colptr[1:] - colptr[:-1]
        return rows_of(code), torch.repeat_interleave(torch.arange(self.workload.n_in), counts)


@dataclass(frozen=True)
class Contender:
    """A way to do the work, and how to read the answer from what one run of it returns."""

    name: str
    run: Callable[[], object]
    answer: Callable[[], Answer]


def require_equal(contender: Contender, expected: Answer) -> None:
    """Raise unless the contender computes ``expected``."""
    found = contender.answer()
    for part in ("y", "dx", "dw"):
        ours, theirs = getattr(found, part), getattr(expected, part)
        scale = float(theirs.abs().max()) if theirs.numel() else 0.0
        same = ours.shape == theirs.shape
        if not same or not torch.allclose(ours, theirs, rtol=_TOLERANCE, atol=_TOLERANCE * scale):
            raise WrongAnswerError(f"{contender.name}: {part} differs from dense torch")
