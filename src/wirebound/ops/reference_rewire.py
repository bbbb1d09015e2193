"""Death and rebirth in plain torch: the reference of ``ops.rewire_``.

The dead leave, as many dormant connections are born, and every array that rides along (θ, optimiser state) is put
in order again, in place: O(K) time, nothing dense, no sort of K numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.layout import Geometry, pack
from wirebound.ops.philox import Stream, stream_of


def layer_counts(geometry: Geometry, colptr: Tensor) -> list[int]:
    """Connections of each layer."""
    edges = colptr[torch.tensor(geometry.column_start, device=colptr.device)].tolist()
    return [after - before for before, after in itertools.pairwise(edges)]


def draw_layers(
    count: int, shares: Sequence[float], room: Sequence[int], seed: int, stream: int, step: int
) -> list[int]:
    """How many newborns each layer gets when layers are drawn by ``shares``; a full layer passes its excess on."""
    given = [0] * len(shares)
    used = 0
    while count:
        weights = [share if given[i] < room[i] else 0.0 for i, share in enumerate(shares)]
        if not sum(weights):  # only layers without a share have room left
            weights = [float(given[i] < room[i]) for i in range(len(room))]
        edges = torch.tensor(weights, dtype=torch.float64, device="cpu").cumsum(0)
        first = used // 4 * 4
        w = philox.words(seed, stream, step, used - first + count, torch.device("cpu"), first=first)[used - first :]
        u = w.to(torch.float64) * 2.0**-32 * edges[-1]
        drawn = torch.bincount(torch.searchsorted(edges, u, right=True), minlength=len(shares)).tolist()
        used += count
        count = 0
        for i, n in enumerate(drawn):
            taken = min(n, room[i] - given[i])
            given[i] += taken
            count += n - taken
    return given


def draw_newborns(
    geometry: Geometry,
    survivors: Tensor,
    count: int,
    seed: int,
    wiring_index: int,
    step: int,
    shares: Sequence[float] | None,
    closed: Sequence[bool] | None = None,
) -> Tensor:
    """Sorted positions of ``count`` newborns: uniform over all dormant ones, or over those of layers drawn by share.

    Nobody is born in layers that are ``closed``.
    """
    device = survivors.device
    if shares is None and closed is not None:
        return _draw_in_open(geometry, survivors, count, seed, wiring_index, step, closed)
    if shares is None:
        stream = stream_of(Stream.NEWBORN, wiring_index)
        ranks = philox.sample_sorted(geometry.possible - survivors.numel(), count, seed, stream, step, device)
        return philox.dormant_at(ranks, survivors)
    edges = torch.tensor(geometry.position_start, device=device)
    bounds = torch.searchsorted(survivors, edges).tolist()
    room = [size - (bounds[i + 1] - bounds[i]) for i, size in enumerate(geometry.sizes)]
    if closed is not None:
        room = [0 if shut else here for here, shut in zip(room, closed, strict=True)]
    counts = draw_layers(count, shares, room, seed, stream_of(Stream.NEWBORN_LAYER, wiring_index), step)
    return draw_in_layers(geometry, survivors, counts, seed, wiring_index, step)


def _draw_in_open(
    geometry: Geometry,
    survivors: Tensor,
    count: int,
    seed: int,
    wiring_index: int,
    step: int,
    closed: Sequence[bool],
) -> Tensor:
    """Uniform over the dormant positions of the layers that are not closed, counted as if there were no others."""
    device = survivors.device
    layers = [i for i, shut in enumerate(closed) if not shut]
    ends = list(itertools.accumulate(geometry.sizes[i] for i in layers))
    starts = [end - geometry.sizes[i] for i, end in zip(layers, ends, strict=True)]
    edges = torch.tensor(geometry.position_start, device=device)
    bounds = torch.searchsorted(survivors, edges).tolist()
    kept = [
        survivors[bounds[i] : bounds[i + 1]] - (geometry.position_start[i] - start)
        for i, start in zip(layers, starts, strict=True)
    ]
    occupied = torch.cat(kept)
    stream = stream_of(Stream.NEWBORN, wiring_index)
    ranks = philox.sample_sorted(ends[-1] - occupied.numel(), count, seed, stream, step, device)
    places = philox.dormant_at(ranks, occupied)
    of = torch.searchsorted(torch.tensor(ends, device=device), places, right=True)
    shift = [geometry.position_start[i] - start for i, start in zip(layers, starts, strict=True)]
    return places + torch.tensor(shift, device=device)[of]


def draw_in_layers(
    geometry: Geometry, survivors: Tensor, counts: Sequence[int], seed: int, wiring_index: int, step: int
) -> Tensor:
    """Sorted positions of ``counts[i]`` newborns in layer i, uniform over the dormant ones of that layer."""
    device = survivors.device
    bounds = torch.searchsorted(survivors, torch.tensor(geometry.position_start, device=device)).tolist()
    born = []
    for i, n in enumerate(counts):
        if n:
            stream = stream_of(Stream.NEWBORN, wiring_index, layer=i)
            room = geometry.sizes[i] - (bounds[i + 1] - bounds[i])
            ranks = philox.sample_sorted(room, n, seed, stream, step, device)
            start = geometry.position_start[i]
            born.append(start + philox.dormant_at(ranks, survivors[bounds[i] : bounds[i + 1]] - start))
    return torch.cat(born) if born else torch.empty(0, dtype=torch.int64, device=device)


def _merged(array: Tensor, alive: Tensor, place_old: Tensor, place_new: Tensor, fill: float | Tensor) -> Tensor:
    """The array in its new order: who stayed, and ``fill`` where the newborns are."""
    merged = torch.empty_like(array)
    merged[place_old] = array[alive]
    merged[place_new] = fill
    return merged


def replace_(
    geometry: Geometry,
    colptr: Tensor,
    packed_rows: Tensor,
    carried: Sequence[tuple[Tensor, float | Tensor]],
    dead: Tensor,
    newborns: Tensor,
    negative: Tensor,
) -> tuple[list[int], list[int]]:
    """Replace the ``dead`` (sorted indices) by as many ``newborns`` (sorted dormant positions), in place.

    ``carried`` are (array of length K, what newborns hold there: one value, or one for each). ``negative`` says
    whether the sign of each newborn is -1. Returns (born, died) of each layer.
    """
    before = layer_counts(geometry, colptr)
    edges = torch.tensor(geometry.column_start, device=colptr.device)
    died_edges = torch.searchsorted(dead, colptr[edges]).tolist()
    died = [b - a for a, b in itertools.pairwise(died_edges)]

    alive = torch.ones(packed_rows.numel(), dtype=torch.bool, device=packed_rows.device)
    alive[dead] = False
    survivors = geometry.positions(packed_rows, colptr)[alive]
    columns, rows = geometry.locate(newborns)
    # Two sorted lists merge by counting how many of the other list stand before each element.
    place_new = torch.arange(newborns.numel(), device=packed_rows.device) + torch.searchsorted(survivors, newborns)
    place_old = torch.arange(survivors.numel(), device=packed_rows.device) + torch.searchsorted(newborns, survivors)
    targets, values = [packed_rows], [_merged(packed_rows, alive, place_old, place_new, pack(rows, negative))]
    for array, fill in carried:
        targets.append(array)
        values.append(_merged(array, alive, place_old, place_new, fill))
    dead_before = torch.searchsorted(dead, colptr)
    # colptr[c] counts the connections left of column c: those that stayed, and the newborns that came in there.
    born_before = torch.searchsorted(columns, torch.arange(colptr.numel(), device=packed_rows.device))
    targets.append(colptr)
    values.append(colptr + born_before - dead_before)
    with torch.no_grad():
        torch._foreach_copy_(targets, values)  # one call: an interrupt finds all of it done, or nothing
    after = layer_counts(geometry, colptr)
    born = [a - (b - d) for a, b, d in zip(after, before, died, strict=True)]
    return born, died


def rewire_(
    geometry: Geometry,
    colptr: Tensor,
    packed_rows: Tensor,
    carried: Sequence[tuple[Tensor, float]],
    dead: Tensor,
    seed: int,
    wiring_index: int,
    step: int,
    shares: Sequence[float] | None,
) -> tuple[list[int], list[int]]:
    """Replace the ``dead`` (sorted indices) by newborns; (born, died) of each layer.

    ``carried`` are (array of length K, what a newborn holds there).
    """
    alive = torch.ones(packed_rows.numel(), dtype=torch.bool, device=packed_rows.device)
    alive[dead] = False
    survivors = geometry.positions(packed_rows, colptr)[alive]
    newborns = draw_newborns(geometry, survivors, dead.numel(), seed, wiring_index, step, shares)
    negative = philox.negative_signs(newborns, seed, wiring_index)
    return replace_(geometry, colptr, packed_rows, carried, dead, newborns, negative)
