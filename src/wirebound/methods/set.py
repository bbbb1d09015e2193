"""SET (Mocanu et al. 2018, "Scalable training of artificial neural networks with adaptive sparse connectivity").

    for each epoch:
        for each batch: θ ← optimiser step
        for each layer:
            the fraction ζ of the smallest positive and of the largest negative weights becomes dormant
            as many dormant connections, drawn at random, become active

| symbol | here |
| --- | --- |
| ζ | ``zeta`` |
| an epoch | ``every``, in steps |
| ε, the Erdős–Rényi wiring at the start | ``wb.sparsify(..., allocation="erdos-renyi")`` |

Differs from the paper in that ``every`` counts steps, because a method does not see epochs; in that the last
epoch, after which the paper replaces nothing, has to be told by ``until``; and in that newborns start at 0 unless
``newborn_scale`` is given, so that growing does not disturb the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn, optim

from wirebound.methods.declaration import FRACTION, REPLACE_EVERY, RunLength
from wirebound.methods.drop import SmallestOfEachSign
from wirebound.methods.evolve import Evolve
from wirebound.methods.grow import Random
from wirebound.methods.when import Every, check_share


class SET(Evolve):
    """Sparse evolutionary training: drop by magnitude, grow at random.

    Args:
        model, optimizer, options: as for ``Evolve``.
        zeta: ζ, the share of the connections to replace.
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
        # Not after the last step: its newborns would never be trained.
        return {"zeta": own["fraction"], "every": every, "until": length.steps}
