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

from torch import nn, optim

from wirebound.methods.drop import SmallestOfEachSign
from wirebound.methods.evolve import Evolve
from wirebound.methods.grow import Random
from wirebound.methods.when import Every


class SET(Evolve):
    """Sparse evolutionary training: drop by magnitude, grow at random.

    Args:
        model, optimizer, scope, newborn_scale: as for ``Evolve``.
        zeta: ζ, the share of the connections to replace.
        every: steps between replacements; the paper's is an epoch, ``len(loader)``.
        until: the step from which on nothing is replaced any more.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        *,
        zeta: float = 0.3,
        every: int = 100,
        until: int | None = None,
        scope: str = "layer",
        newborn_scale: float = 0.0,
    ) -> None:
        super().__init__(
            model,
            optimizer,
            drop=SmallestOfEachSign(),
            grow=Random(),
            when=Every(every, zeta, until),
            scope=scope,
            newborn_scale=newborn_scale,
        )
