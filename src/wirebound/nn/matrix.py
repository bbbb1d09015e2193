"""``SparseMatrix``: one matrix of a layer that has several."""

from __future__ import annotations

from wirebound.nn.part import SparseLayer
from wirebound.wiring import Wiring


class SparseMatrix(SparseLayer):
    """A part of a wiring without a forward of its own: the layer that holds it knows what to do with it."""

    def __init__(self, wiring: Wiring, part: int, *, owner: bool) -> None:
        super().__init__()
        self.attach(wiring, part, owner=owner)

    def extra_repr(self) -> str:
        shape = self.wiring.layers[self.part]
        return f"{shape.n_out}×{shape.n_in}, active={self.active} ({100 * self.active / max(1, shape.possible):.3g} %)"
