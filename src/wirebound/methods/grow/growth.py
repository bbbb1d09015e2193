"""What a grow rule is given, and the rule that grows at random."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from wirebound.ops import OpenColumns
from wirebound.wiring import GradientSource, Wiring, draw_newborns


@dataclass(frozen=True)
class Growth:
    """What has to grow: as many connections as died, in all or in each layer."""

    wiring: Wiring  # with the dead still in it
    survivors: Tensor  # sorted positions
    dead: Tensor  # sorted positions; they are dormant and may be born again
    counts: Sequence[int] | None  # newborns of each layer; None: anywhere in the wiring
    sources: Mapping[int, Sequence[GradientSource]]  # by layer: what the backward passes left
    step: int
    uphill: bool = False  # the optimiser maximises
    open_columns: OpenColumns | None = None  # where connections may be born; None: anywhere

    @property
    def regions(self) -> list[tuple[range, int]]:
        """Layers that are chosen from together, and the number of their newborns."""
        if self.counts is None:
            return [(range(len(self.wiring.layers)), self.dead.numel())]
        return [(range(layer, layer + 1), count) for layer, count in enumerate(self.counts) if count]


GrowRule: TypeAlias = Callable[[Growth], Tensor]


@dataclass(frozen=True)
class Random:
    """Uniform over the dormant connections, exactly, without rejection; grows for SET.

    ``by_share``: in a global budget, draw the layer of each newborn in proportion to the layers' first counts.
    """

    by_share: bool = False

    def __call__(self, growth: Growth) -> Tensor:
        wiring, counts = growth.wiring, growth.counts
        shares = [float(n) for n in wiring.initial_counts.tolist()] if self.by_share and counts is None else None
        return draw_newborns(wiring, growth.survivors, growth.dead, growth.step, counts=counts, shares=shares)
