"""Draws without replacement by a device that tells nobody how many: the same numbers as ``philox.sample_sorted`` finds.

Several regions (layers, or the whole wiring as one) are drawn from at once, each with its own stream. The first k distinct
numbers of a stream are the sample, however many are looked at; where k is more than half of what there is, the sample is of
those that stay out. Room is made for the most that can be needed, so the work is that of K newborns, whoever died.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from wirebound.ops.device.fixed import NOTHING, before, counted_before, front
from wirebound.ops.philox import MASK, philox

_MORE = (1.05, 10.0, 64)  # numbers looked at: times the expected ones, plus so many of their roots, plus a few
_HALF = 2 * math.log(2)  # numbers for each of k distinct ones, at most, where k is half of what there is


class Regions(NamedTuple):
    """What is drawn from: region i has ``rooms[i]`` places from ``starts[i]`` on, of which ``counts[i]`` are drawn."""

    starts: Tensor
    rooms: Tensor
    counts: Tensor
    streams: Sequence[int]


def words_at(numbers: Tensor, seed: int, stream: Tensor | int, step: int) -> Tensor:
    """The 32-bit words with these numbers, of one stream or each of its own."""
    same = torch.zeros_like(numbers)
    four = torch.stack(philox(numbers >> 2, same + (step & MASK), same + (step >> 32), same + stream, seed))
    return four.gather(0, (numbers & 3).unsqueeze(0)).squeeze(0)


def _numbers_below(which: Tensor, seed: int, stream: Tensor, step: int, below: Tensor) -> Tensor:
    """``philox.integers_below`` for numbers of several streams."""
    same = torch.zeros_like(which)
    a, b, c, d = philox(which >> 1, same + (step & MASK), same + (step >> 32), stream, seed)
    odd = (which & 1).bool()
    low, high = torch.where(odd, c, a), torch.where(odd, d, b)
    return (((high << 32 | low) >> 1) & 0x7FFFFFFFFFFFFFFF) % below


def draw(regions: Regions, most: int, seed: int, step: int, may_fill: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted numbers start + [0, room) of all regions, ``most`` long with ``NOTHING`` at the end; the region of each; and
    whether all were found, which is certain for all purposes.

    ``may_fill``: a region may get more newborns than stay out of it.
    """
    starts, rooms, counts, streams = regions
    device, width = starts.device, len(streams)
    wanted, out = counts, torch.zeros_like(counts, dtype=torch.bool)
    if may_fill:
        out = 2 * counts > rooms
        wanted = torch.where(out, rooms - counts, counts)
    share = wanted.to(torch.float64) / rooms.clamp(min=1)
    expected = -rooms * torch.log1p(-share)
    looked = torch.where(wanted > 0, (_MORE[0] * expected + _MORE[1] * expected.sqrt()).ceil().to(torch.int64) + _MORE[2], 0)
    length = math.ceil(_MORE[0] * _HALF * most + _MORE[1] * math.sqrt(width * _HALF * most)) + (_MORE[2] + 1) * width
    first, ends = before(looked), looked.cumsum(0)
    slot = torch.arange(length, device=device)
    region = torch.searchsorted(ends, slot, right=True).clamp(max=width - 1)
    stream = torch.tensor(streams, device=device)[region]
    values = _numbers_below(slot - first[region], seed, stream, step, rooms.clamp(min=1)[region])
    keys, order = torch.where(slot < ends[-1], starts[region] + values, NOTHING).sort(stable=True)
    is_first = torch.ones_like(keys, dtype=torch.bool)
    is_first[1:] = keys[1:] != keys[:-1]
    new = torch.zeros_like(is_first).scatter_(0, order, is_first & (keys != NOTHING))
    rank = new.cumsum(0) - counted_before(new, first)[region]
    kept = new & (rank <= wanted[region])
    found = front(kept[order], keys, most)
    complete = kept.sum() == wanted.sum()
    number = torch.arange(most, device=device)
    own = torch.searchsorted(counts.cumsum(0), number, right=True).clamp(max=width - 1)
    if may_fill:
        held = torch.searchsorted(wanted.cumsum(0), number, right=True).clamp(max=width - 1)
        free_before = torch.where(found == NOTHING, found, found - (number - before(wanted)[held]))
        rank_in = number - before(counts)[own]
        asked = starts[own] + rank_in
        beside = asked + torch.searchsorted(free_before, asked, right=True) - before(wanted)[own]
        direct = found[(before(wanted)[own] + rank_in).clamp(0, most - 1)] if most else found
        found = torch.where(out[own], beside, direct)
    return torch.where(number < counts.sum(), found, NOTHING), own, complete


def layers_by_share(
    count: Tensor, most: int, shares: Sequence[float], room: Tensor, smallest_room: Sequence[bool], seed: int, stream: int, step: int
) -> Tensor:
    """``draw_layers``: newborns of each layer, drawn by share; a full layer passes its excess on.

    ``smallest_room`` says which layers can become full: each of them may take another round.
    """
    device, layers = room.device, len(shares)
    by_share = torch.tensor(shares, dtype=torch.float64, device=device)
    given, used = torch.zeros_like(room), torch.zeros_like(count)
    number = torch.arange(most, device=device)
    rounds = 1 + sum(smallest_room) + (1 if any(smallest_room) and min(shares) == 0 else 0)
    for _ in range(rounds):
        left = count - given.sum()
        open_ = given < room
        weights = torch.where(open_, by_share, 0.0)
        weights = torch.where(weights.sum() > 0, weights, open_.to(torch.float64))
        edges = weights.cumsum(0)
        u = words_at(used + number, seed, stream, step).to(torch.float64) * 2.0**-32 * edges[-1]
        layer = torch.where(number < left, torch.searchsorted(edges, u, right=True), layers)
        drawn = torch.zeros(layers + 1, dtype=torch.int64, device=device).scatter_add_(0, layer, torch.ones_like(layer))[:-1]
        used = used + left
        given = given + torch.minimum(drawn, room - given)
    return given
