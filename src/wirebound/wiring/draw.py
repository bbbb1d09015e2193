"""Which dormant connections are born: drawn uniformly, as many as died, and those that a rule has chosen already."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wirebound import ops

if TYPE_CHECKING:
    from wirebound.wiring.wiring import Wiring


def draw_newborns(
    wiring: Wiring,
    survivors: Tensor,
    dead: Tensor,
    step: int,
    *,
    chosen: Tensor | None = None,
    counts: Sequence[int] | None = None,
    shares: Sequence[float] | None = None,
) -> Tensor:
    """Sorted dormant positions for as many newborns as connections died.

    Args:
        survivors, dead: sorted positions; the dead are dormant and may be drawn.
        chosen: sorted dormant positions that are to be among them; the rest is drawn.
        counts: newborns of each layer; by default they are drawn over all layers:
        shares: the layer of each in proportion to these, else uniformly over the wiring.
    """
    geometry, name = wiring.geometry, (wiring.seed, wiring.index, step)
    missing, occupied = dead.numel(), survivors
    if chosen is not None and chosen.numel():
        missing, occupied = missing - chosen.numel(), torch.cat([survivors, chosen]).sort().values
        if counts is not None:
            counts = [n - have for n, have in zip(counts, per_layer(wiring, chosen), strict=True)]
    if counts is not None:
        drawn = ops.draw_in_layers(geometry, occupied, counts, *name)
    else:
        drawn = ops.draw_newborns(geometry, occupied, missing, *name, shares)
    return drawn if chosen is None else torch.cat([chosen, drawn]).sort().values


def per_layer(wiring: Wiring, positions: Tensor) -> list[int]:
    """How many of these sorted positions each layer has."""
    edges = torch.tensor(wiring.geometry.position_start, device=positions.device)
    return [b - a for a, b in itertools.pairwise(torch.searchsorted(positions, edges).tolist())]


def fault_of_newborns(wiring: Wiring, survivors: Tensor, newborns: Tensor, count: int) -> str | None:
    """Why these positions cannot be born, or None."""
    if newborns.numel() != count:
        return f"newborns (={newborns.numel()}) must be as many as the dead (={count})"
    if not count:
        return None
    if bool((newborns[1:] <= newborns[:-1]).any()):
        return "positions of newborns must be distinct and sorted"
    if int(newborns[0]) < 0 or int(newborns[-1]) >= wiring.possible:
        return f"positions of newborns must be in [0, {wiring.possible})"
    if bool(torch.isin(newborns, survivors, assume_unique=True).any()):
        return "newborns must be dormant"
    return None
