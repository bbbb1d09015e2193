"""Which connections exist first and how strong, and which dormant ones are born: draws in O(K), nothing dense."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops import philox
from wirebound.ops.device.steps import newborns_among, shared_counts
from wirebound.ops.layout import Geometry, pack
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring.room import draw_first, draw_within_caps

if TYPE_CHECKING:
    from wirebound.wiring.wiring import Wiring

_CHUNK = 1 << 16  # positions at a time: larger pieces of scratch stay with the allocator
INITS = ("dense-fan-in", "sparse-fan-in")


def draw_positions(
    geometry: Geometry, counts: Sequence[int], seed: int, index: int, device: torch.device, fan_caps: Tensor | None = None
) -> Tensor:
    """``counts[i]`` positions in layer i, every subset (within the caps) equally likely, sorted through all layers."""
    if fan_caps is not None:
        return draw_first(geometry, fan_caps, counts, seed, index, device)
    parts = []
    for i, (count, size) in enumerate(zip(counts, geometry.sizes, strict=True)):
        stream = stream_of(Stream.POSITIONS, index, layer=i)
        drawn = ops.backend_on(device).sample_sorted(size, count, seed, stream, 0, device)
        parts.append(drawn.add_(geometry.position_start[i]))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def draw_theta(
    geometry: Geometry, counts: Sequence[int], seed: int, index: int, init: str, gain: float | Sequence[float],
    device: torch.device, dtype: torch.dtype,
) -> Tensor:
    """θ = gain · |N(0, 1)| / √fan-in. With a random sign this is the paper's N(0, 1)/√n_in.

    ``dense-fan-in``: n_in, the columns of the matrix, as in the paper. ``sparse-fan-in``: the mean connections of a row.
    """
    if init not in INITS:
        raise ValueError(f"init (={init!r}) must be one of {INITS}")
    gains = gain if isinstance(gain, Sequence) else [gain] * len(counts)
    if len(gains) != len(counts):
        raise ValueError(f"gain has {len(gains)} values for {len(counts)} layers")
    parts = []
    for i, (count, rows, columns) in enumerate(zip(counts, geometry.n_out, geometry.n_in, strict=True)):
        fan_in = columns if init == "dense-fan-in" else max(1.0, count / max(1, rows))
        nu = ops.backend_on(device).normals(seed, stream_of(Stream.WEIGHTS, index, layer=i), 0, count, device).to(dtype)
        parts.append(nu.abs_().mul_(gains[i] / math.sqrt(fan_in)))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def build_index(geometry: Geometry, positions: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """(packed_rows, colptr) of sorted positions, a chunk at a time: the scratch must not outweigh the wiring."""
    packed_rows = torch.empty(positions.numel(), dtype=torch.int32, device=positions.device)
    colptr = torch.zeros(geometry.column_start[-1] + 1, dtype=torch.int64, device=positions.device)
    for start in range(0, positions.numel(), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        columns, rows = geometry.locate(positions[chunk])
        packed_rows[chunk] = pack(rows, negative[chunk])
        first = int(columns[0])
        counts = torch.bincount(columns - first)
        colptr[first + 1 : first + 1 + counts.numel()] += counts
    return packed_rows, torch.cumsum(colptr, 0, out=colptr)


def draw_newborns(
    wiring: Wiring, survivors: Tensor, dead: Tensor, step: int, *, chosen: Tensor | None = None,
    counts: Sequence[int] | None = None, shares: Sequence[float] | None = None,
    open_columns: ops.OpenColumns | None = None,
) -> Tensor:
    """Sorted dormant positions for as many newborns as connections died, within caps, none of them in a frozen layer.

    Args:
        survivors, dead: sorted positions; the dead are dormant and may be drawn.
        chosen: sorted dormant positions that must be among them; the rest is drawn.
        counts: newborns of each layer; by default they are drawn over all layers.
        shares: the layer of each newborn in proportion to these, else uniformly over the wiring.
        open_columns: where those that are drawn may come to; by default anywhere.
    """
    geometry, name = wiring.geometry, (wiring.seed, wiring.index, step)
    chosen = survivors[:0] if chosen is None else chosen
    occupied = torch.cat([survivors, chosen]).sort().values if chosen.numel() else survivors
    if counts is not None and chosen.numel():
        counts = [n - have for n, have in zip(counts, per_layer(geometry, chosen), strict=True)]
    closed = wiring.layer_rates.frozen if wiring.has_frozen else None
    if open_columns is not None and wiring.fan_caps is not None:
        instead = 'use lazy="off", by which they are drawn among all columns'
        raise NotImplementedError(f"newborns within max_fan_in or max_fan_out cannot be drawn among columns that occur: {instead}")
    if wiring.fan_caps is not None:
        return draw_within_caps(geometry, wiring.fan_caps, occupied, chosen, dead, name, counts, shares, closed)
    if wiring.is_whole and closed is None and not chosen.numel():
        number = dead.numel()
        wanted = torch.tensor([number] if counts is None else list(counts), device=dead.device)
        if counts is None and shares is not None:
            wanted = shared_counts(wiring, occupied, wanted[0], number, step, shares)
        return newborns_among(wiring, occupied, wanted, number, step, counts is not None or shares is not None)[0]
    sample = ops.backend_on(survivors.device).sample_sorted
    if open_columns is not None and counts is not None:
        drawn = ops.draw_in_open(open_columns, occupied, counts, name, sample)
    elif open_columns is not None:
        drawn = ops.draw_newborns(wiring, occupied, dead.numel() - chosen.numel(), step, shares, closed, sample, open_columns)
    elif counts is not None:
        drawn = ops.draw_in_layers(wiring, occupied, counts, step, sample)
    else:
        drawn = ops.draw_newborns(wiring, occupied, dead.numel() - chosen.numel(), step, shares, closed, sample)
    return torch.cat([chosen, drawn]).sort().values if chosen.numel() else drawn


def births_of_layers(
    wiring: Wiring, survivors: Tensor, dead: Tensor, step: int, shares: Sequence[float] | None
) -> list[int]:
    """How many newborns each layer gets; drawn by the law of ``draw_newborns``, with fewer numbers."""
    count, layers = dead.numel(), len(wiring.layers)
    if layers == 1:
        return [count]
    if shares is not None and not wiring.constrained and not wiring.has_frozen:
        room = [n - have for n, have in zip(wiring.geometry.sizes, per_layer(wiring.geometry, survivors), strict=True)]
        drawn, left = [], count
        for layer, share in enumerate(shares):  # one by one, each a binomial of those that are left
            u = philox.uniform(wiring.seed, stream_of(Stream.NEWBORN_LAYER, wiring.index, layer=layer), step)
            drawn.append(philox.binomial(left, share / max(share, sum(shares[layer:])) if share else 0.0, u))
            left -= drawn[-1]
        if not left and all(n <= most for n, most in zip(drawn, room, strict=True)):
            return drawn
    return per_layer(wiring.geometry, draw_newborns(wiring, survivors, dead, step, shares=shares))


def draw_dormant(wiring: Wiring, occupied: Tensor, count: int, step: int) -> Tensor:
    """``count`` sorted positions that are not ``occupied`` (sorted), all subsets equally likely, or all there are; none of
    them in a frozen layer."""
    layers, device = [i for i in range(len(wiring.layers)) if not wiring.is_frozen(i)], occupied.device
    dormant, stream = ops.Dormant(wiring.geometry, occupied, layers), stream_of(Stream.CANDIDATE, wiring.index)
    sample = ops.backend_on(device).sample_sorted
    return dormant.at(sample(dormant.size, min(count, dormant.size), wiring.seed, stream, step, device))


def draw_dormant_in_layers(
    wiring: Wiring, occupied: Tensor, counts: Sequence[int], step: int, open_columns: ops.OpenColumns | None = None
) -> tuple[Tensor, list[int]]:
    """``draw_dormant`` of so many positions of each layer, or of all that it has; and how many they are of each. With
    ``open_columns`` in there only."""
    if open_columns is not None:
        rooms = ops.dormant_counts(open_columns, occupied)
        frozen = (wiring.is_frozen(layer) for layer in range(len(wiring.layers)))
        most = [0 if still else min(count, room) for count, room, still in zip(counts, rooms, frozen, strict=True)]
        backend, name = ops.backend_on(occupied.device), (wiring.seed, wiring.index, step)
        return ops.draw_in_open(open_columns, occupied, most, name, backend.sample_sorted, Stream.CANDIDATE), most
    geometry, device, drawn, ranks = wiring.geometry, occupied.device, list[int](), list[Tensor]()
    sample, dormant_before = ops.backend_on(device).sample_sorted, 0
    for layer, (count, size, have) in enumerate(zip(counts, geometry.sizes, per_layer(geometry, occupied), strict=True)):
        drawn.append(0 if wiring.is_frozen(layer) else min(count, size - have))
        if drawn[-1]:
            stream = stream_of(Stream.CANDIDATE, wiring.index, layer=layer)
            ranks.append(sample(size - have, drawn[-1], wiring.seed, stream, step, device).add_(dormant_before))
        dormant_before += size - have
    return philox.dormant_at(torch.cat(ranks), occupied) if ranks else occupied[:0], drawn


def per_layer(geometry: Geometry, positions: Tensor) -> list[int]:
    edges = torch.tensor(geometry.position_start, device=positions.device)
    return [b - a for a, b in itertools.pairwise(torch.searchsorted(positions, edges).tolist())]


def fault_of_newborns(wiring: Wiring, survivors: Tensor, newborns: Tensor, count: int) -> str | None:
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
    for layer_id, born in enumerate(per_layer(wiring.geometry, newborns) if wiring.has_frozen else ()):
        if born and wiring.is_frozen(layer_id):
            return f"newborns (={born}) must not be in layer {wiring.layers[layer_id].name!r}, which is frozen"
    return None
