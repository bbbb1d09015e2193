"""SET, a setting of ``Evolve``."""

from collections.abc import Mapping
from typing import Any

from torch import nn, optim

from wirebound.methods.declaration import FRACTION, REPLACE_EVERY, RunLength
from wirebound.methods.drop import SmallestOfEachSign
from wirebound.methods.evolve import Evolve
from wirebound.methods.grow import Random
from wirebound.methods.when import Every, check_share


class SET(Evolve):
    """SET (Mocanu et al. 2018): drop by magnitude, grow at random.

    Differs from the paper in that ``every`` counts steps, not epochs; in that the last epoch, after which the paper
    replaces nothing, has to be told by ``until``; and in that newborns start at 0 unless ``newborn_scale`` is given.
    The paper's start is ``wb.sparsify(..., allocation="erdos-renyi")``.

    Args:
        model, optimizer, options: as for ``Evolve``.
        zeta: ζ, the share of the smallest positive and of the largest negative weights of each layer to replace.
        every: steps between replacements; the paper's is an epoch, ``len(loader)``.
        until: the step from which on nothing is replaced any more.
    """

    name = "set"
    title = "SET"
    settings = (FRACTION, REPLACE_EVERY)

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, zeta: float = FRACTION.default, every: int = 100,
        until: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        when = Every(every, check_share("zeta", zeta), until)
        super().__init__(model, optimizer, drop=SmallestOfEachSign(), grow=Random(), when=when, **options)

    @classmethod
    def arguments(cls, settings: Mapping[str, Any], length: RunLength) -> dict[str, Any]:
        own = cls.values(settings)
        every = own["replace_every"] or length.per_epoch or 100
        return {"zeta": own["fraction"], "every": every, "until": length.steps}  # who is born last would not be trained
