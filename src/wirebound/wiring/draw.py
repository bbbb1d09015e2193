"""Which dormant connections are born: drawn uniformly, as many as died, and those that a rule has chosen already."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.reference_rewire import draw_layers
from wirebound.wiring.repair import augment, regular
from wirebound.wiring.room import Numbers, Room

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

    Where neurons have caps, only positions that keep them are drawn, one newborn after another. Nobody is born in a
    frozen layer: since nobody dies there either, the places of the dead at least are always free.
    """
    if wiring.fan_caps is not None:
        return _within_caps(wiring, wiring.fan_caps, survivors, dead, step, chosen, counts, shares)
    geometry, name = wiring.geometry, (wiring.seed, wiring.index, step)
    missing, occupied = dead.numel(), survivors
    if chosen is not None and chosen.numel():
        missing, occupied = missing - chosen.numel(), torch.cat([survivors, chosen]).sort().values
        if counts is not None:
            counts = [n - have for n, have in zip(counts, per_layer(wiring, chosen), strict=True)]
    if counts is not None:
        drawn = ops.draw_in_layers(geometry, occupied, counts, *name)
    else:
        closed = wiring.layer_rates.frozen if wiring.has_frozen else None
        drawn = ops.draw_newborns(geometry, occupied, missing, *name, shares, closed)
    return drawn if chosen is None else torch.cat([chosen, drawn]).sort().values


def _within_caps(
    wiring: Wiring,
    fan_caps: Tensor,
    survivors: Tensor,
    dead: Tensor,
    step: int,
    chosen: Tensor | None,
    counts: Sequence[int] | None,
    shares: Sequence[float] | None,
) -> Tensor:
    newborns = survivors[:0] if chosen is None else chosen
    if wiring.has_frozen:
        fan_caps = fan_caps.masked_fill(torch.tensor(wiring.layer_rates.frozen, device=fan_caps.device), 0)
    room = Room(wiring.geometry, fan_caps, torch.cat([survivors, newborns]).sort().values)
    missing = dead.numel() - newborns.numel()

    def numbers(layer: int | None) -> Numbers:
        stream = stream_of(Stream.NEWBORN, wiring.index, layer=layer)
        return Numbers(wiring.seed, stream, step, survivors.device)

    if counts is None and shares is not None:
        stream = stream_of(Stream.NEWBORN_LAYER, wiring.index)
        wanted = draw_layers(missing, shares, room.layer_room(), wiring.seed, stream, step)
    elif counts is not None:
        wanted = [n - have for n, have in zip(counts, per_layer(wiring, newborns), strict=True)]
    else:
        wanted = [0] * len(wiring.layers)
    drawn = [room.draw(n, numbers(layer), layer) for layer, n in enumerate(wanted)]
    if counts is None:
        drawn.append(room.draw(missing - sum(part.numel() for part in drawn), numbers(None)))
    newborns = torch.cat([newborns, *drawn]).sort().values
    if newborns.numel() == dead.numel():
        return newborns
    if counts is None:
        return augment(room, newborns, dead, dead.numel() - newborns.numel())
    starts = torch.tensor(wiring.geometry.position_start[1:], device=dead.device)
    of_newborns, of_dead = (torch.searchsorted(starts, part, right=True) for part in (newborns, dead))
    parts = []
    for layer, n in enumerate(counts):
        mine = newborns[of_newborns == layer]
        parts.append(augment(room, mine, dead[of_dead == layer], n - mine.numel()))
    return torch.cat(parts)


def draw_first(
    geometry: Geometry, fan_caps: Tensor, counts: Sequence[int], seed: int, wiring_index: int, device: torch.device
) -> Tensor:
    """``counts[i]`` sorted positions in layer i that keep the caps, drawn one after another; they are known to fit."""
    room = Room(geometry, fan_caps, torch.empty(0, dtype=torch.int64, device=device))
    parts = []
    for layer, count in enumerate(counts):
        stream = stream_of(Stream.POSITIONS, wiring_index, layer=layer)
        found = room.draw(count, Numbers(seed, stream, 0, device), layer)
        if found.numel() < count:
            fits = geometry.position_start[layer] + regular(geometry.n_out[layer], geometry.n_in[layer], count).to(device)
            found = augment(room, found, fits, count - found.numel())
        parts.append(found.sort().values)
    return torch.cat(parts)


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
    for layer, born in enumerate(per_layer(wiring, newborns) if wiring.has_frozen else ()):
        if born and wiring.is_frozen(layer):
            return f"newborns (={born}) must not be in layer {wiring.layers[layer].name!r}, which is frozen"
    return None
