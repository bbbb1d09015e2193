"""RigL, a setting of ``Evolve``."""

from collections.abc import Mapping
from typing import Any

from torch import nn, optim

from wirebound.methods.declaration import FRACTION, REPLACE_EVERY, REPLACE_UNTIL, RunLength
from wirebound.methods.drop import Magnitude
from wirebound.methods.evolve import Evolve
from wirebound.methods.grow import Gradient
from wirebound.methods.when import Every, cosine


class RigL(Evolve):
    """RigL (Evci et al. 2020): drop by magnitude, grow by gradient.

    Differs from the paper in that the gradient of dormant connections is never there as a whole, only a block at a time;
    in that a step that replaces connections is a step of the optimiser too; and in that a connection which is dropped and
    chosen again starts at 0 like every newborn.

    Args:
        model, optimizer, options: as for ``Evolve``.
        fraction: α, the share of the connections of each layer to replace at the start.
        every: ΔT, steps between replacements.
        until: T_end, the step from which on nothing is replaced; the share falls to 0 on the way there, along half a
            cosine. The paper's is 75 % of the steps of training; without it the share stays as it is.
    """

    name = "rigl"
    title = "RigL"
    settings = (FRACTION, REPLACE_EVERY, REPLACE_UNTIL)

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, fraction: float = FRACTION.default, every: int = 100,
        until: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        when = Every(every, fraction if until is None else cosine(fraction, until), until)
        super().__init__(model, optimizer, drop=Magnitude(), grow=Gradient(), when=when, **options)

    @classmethod
    def arguments(cls, settings: Mapping[str, Any], length: RunLength) -> dict[str, Any]:
        own = cls.values(settings)
        until = None if length.steps is None else max(1, round(own["replace_until"] * length.steps))
        return {"fraction": own["fraction"], "every": own["replace_every"] or 100, "until": until}
