"""Death and rebirth in plain torch.

The dead leave, as many dormant connections are born, and every array that is carried along (θ, optimiser state) is put
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
from wirebound.ops.reference.update import ReferenceUpdate
from wirebound.ops.rule import Carried, Counts, DriftAndNoise, Rule, State, StepCounts, WiringArrays


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


def _bounds(geometry: Geometry, positions: Tensor) -> list[int]:
    """Where each layer starts among sorted positions, and the last ends."""
    edges = torch.tensor(geometry.position_start, device=positions.device)
    return torch.searchsorted(positions, edges).tolist()


def draw_newborns(
    wiring: WiringArrays,
    survivors: Tensor,
    count: int,
    step: int,
    shares: Sequence[float] | None,
    closed: Sequence[bool] | None = None,
) -> Tensor:
    """Sorted positions of ``count`` newborns: uniform over all dormant ones, or over those of layers drawn by share.

    Nobody is born in layers that are ``closed``: a uniform draw counts positions as if those layers were not there.
    """
    geometry, device, bounds = wiring.geometry, survivors.device, _bounds(wiring.geometry, survivors)
    open_layers = [i for i in range(geometry.layers) if closed is None or not closed[i]]
    if shares is not None:
        room = [0] * geometry.layers
        for i in open_layers:
            room[i] = geometry.sizes[i] - (bounds[i + 1] - bounds[i])
        counts = draw_layers(count, shares, room, wiring.seed, stream_of(Stream.NEWBORN_LAYER, wiring.index), step)
        return draw_in_layers(wiring, survivors, counts, step)
    ends = list(itertools.accumulate(geometry.sizes[i] for i in open_layers))
    shift = [geometry.position_start[i] - (end - geometry.sizes[i]) for i, end in zip(open_layers, ends, strict=True)]
    occupied = torch.cat([survivors[bounds[i] : bounds[i + 1]] - by for i, by in zip(open_layers, shift, strict=True)])
    stream = stream_of(Stream.NEWBORN, wiring.index)
    ranks = philox.sample_sorted(ends[-1] - occupied.numel(), count, wiring.seed, stream, step, device)
    places = philox.dormant_at(ranks, occupied)
    layer = torch.searchsorted(torch.tensor(ends, device=device), places, right=True)
    return places + torch.tensor(shift, device=device)[layer]


def draw_in_layers(wiring: WiringArrays, survivors: Tensor, counts: Sequence[int], step: int) -> Tensor:
    """Sorted positions of ``counts[i]`` newborns in layer i, uniform over the dormant ones of that layer."""
    geometry, device = wiring.geometry, survivors.device
    bounds = _bounds(geometry, survivors)
    born = [torch.empty(0, dtype=torch.int64, device=device)]
    for i, n in enumerate(counts):
        if n:
            stream = stream_of(Stream.NEWBORN, wiring.index, layer=i)
            room = geometry.sizes[i] - (bounds[i + 1] - bounds[i])
            ranks = philox.sample_sorted(room, n, wiring.seed, stream, step, device)
            start = geometry.position_start[i]
            born.append(start + philox.dormant_at(ranks, survivors[bounds[i] : bounds[i + 1]] - start))
    return torch.cat(born)


def replace_(
    wiring: WiringArrays,
    carried: Sequence[tuple[Tensor, float | Tensor]],
    dead: Tensor,
    newborns: Tensor,
    negative: Tensor,
) -> tuple[Counts, Counts]:
    """Replace the ``dead`` (sorted indices) by as many ``newborns`` (sorted dormant positions), in place.

    ``carried`` are (array of length K, what newborns hold there: one value, or one for each). ``negative`` says
    whether the sign of each newborn is -1. Returns (born, died) of each layer.
    """
    geometry, colptr, packed_rows = wiring.geometry, wiring.colptr, wiring.packed_rows
    edges = torch.tensor(geometry.column_start, device=colptr.device)
    bounds = colptr[edges]
    died = torch.searchsorted(dead, bounds).diff()
    alive = _alive(packed_rows, dead)
    survivors = geometry.positions(packed_rows, colptr)[alive]
    columns, rows = geometry.locate(newborns)
    # Two sorted lists merge by counting how many of the other list stand before each element.
    place_new = torch.arange(newborns.numel(), device=packed_rows.device) + torch.searchsorted(survivors, newborns)
    place_old = torch.arange(survivors.numel(), device=packed_rows.device) + torch.searchsorted(newborns, survivors)
    moving, values = [(packed_rows, pack(rows, negative)), *carried], []
    for array, fill in moving:
        values.append(torch.empty_like(array))
        values[-1][place_old] = array[alive]
        values[-1][place_new] = fill
    dead_before = torch.searchsorted(dead, colptr)
    # colptr[c] counts the connections left of column c: those that stayed, and the newborns that came in there.
    born_before = torch.searchsorted(columns, torch.arange(colptr.numel(), device=packed_rows.device))
    values.append(colptr + born_before - dead_before)
    with torch.no_grad():  # one call: an interrupt finds all of it done, or nothing
        torch._foreach_copy_([*(array for array, _ in moving), colptr], values)
    return (colptr[edges] - bounds).diff() + died, died


def _alive(packed_rows: Tensor, dead: Tensor) -> Tensor:
    alive = torch.ones(packed_rows.numel(), dtype=torch.bool, device=packed_rows.device)
    alive[dead] = False
    return alive


class ReferenceRewire(ReferenceUpdate):
    def rewire_(
        self, wiring: WiringArrays, carried: Carried, dead: Tensor, step: int, shares: Sequence[float] | None
    ) -> tuple[Counts, Counts]:
        """Replace the ``dead`` (sorted indices) by newborns, in place, all that is ``carried`` (θ too) along; (born,
        died) of each layer. Newborns are drawn uniformly over all dormant positions, or their layers by ``shares``."""
        positions = wiring.geometry.positions(wiring.packed_rows, wiring.colptr)
        survivors = positions[_alive(wiring.packed_rows, dead)]
        newborns = draw_newborns(wiring, survivors, dead.numel(), step, shares)
        negative = philox.negative_signs(newborns, wiring.seed, wiring.index)
        return replace_(wiring, carried, dead, newborns, negative)

    def step_(
        self, wiring: WiringArrays, theta: Tensor, grad: Tensor | None, rule: Rule, state: State,
        drifts: Sequence[DriftAndNoise], carried: Carried, step: int, shares: Sequence[float] | None, *, clamp: bool,
    ) -> StepCounts:  # fmt: skip
        """``update_`` and then ``rewire_`` for who died, in place; ``carried`` moves along beside θ."""
        theta = theta.detach()
        noise = stream_of(Stream.NOISE, wiring.index)
        dead = self.update_(theta, grad, rule, state, drifts, wiring.seed, noise, step, sign_bound=True, clamp=clamp)
        born: Counts = [0] * wiring.geometry.layers
        died = born
        if dead.numel():
            born, died = self.rewire_(wiring, [(theta, 0), *carried], dead, step, shares)
        bounds = wiring.colptr[torch.tensor(wiring.geometry.column_start, device=theta.device)]
        active_before = torch.nn.functional.pad((theta >= 0).cumsum(0), (1, 0))
        return StepCounts(born, died, active_before[bounds].diff())
