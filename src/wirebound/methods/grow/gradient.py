"""Growth by the gradient of all dormant connections, which is computed a block of columns at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from wirebound.methods.drop import smallest
from wirebound.methods.grow.growth import Growth
from wirebound.ops.device.fixed import NOTHING, mask_of
from wirebound.ops.device.steps import newborns_among
from wirebound.wiring import draw_newborns
from wirebound.wiring.room import Room

BLOCK = 1 << 20  # weights whose gradient is there at a time, unless one column has more


class Best:
    """The positions with the highest scores above 0 so far, as blocks of them come in from low to high positions."""

    def __init__(self, count: int, taken: Tensor) -> None:
        self.count, self.taken, self.positions = count, taken, taken[:0]  # taken: sorted positions, not to be had
        self.scores: Tensor | None = None
        self.bound = 0.0  # what a score must exceed

    def offer(self, first: int, scores: Tensor) -> None:
        """Scores of some columns, [n_out, columns], whose positions begin at ``first``."""
        rows, columns = torch.nonzero(scores > self.bound, as_tuple=True)
        positions = first + columns * scores.shape[0] + rows
        positions, order = positions.sort()  # few are left by now, but for the first block
        values = scores[rows, columns][order]
        if self.taken.numel():
            new = self.taken[torch.searchsorted(self.taken, positions).clamp(max=self.taken.numel() - 1)] != positions
            positions, values = positions[new], values[new]
        if not positions.numel():
            return
        positions = torch.cat([self.positions, positions])
        if self.scores is not None:
            values = torch.cat([self.scores, values])
        if values.numel() > self.count:
            best = smallest(values.neg(), self.count)
            positions, values = positions[best], values[best]
        self.positions, self.scores = positions, values
        if values.numel() == self.count:
            self.bound = float(values.min())


@dataclass(frozen=True)
class Gradient:
    """The dormant connections with the largest |∂E/∂w|, as RigL grows; among equal ones those with the lower position.

    Gradients of several backward passes are added up, as torch does for parameters. Where a process group is active
    they are averaged over its ranks, block by block, as ``DistributedDataParallel`` does for parameters: all ranks must
    then take the step together. A gradient of exactly 0 says nothing about a connection: if fewer than needed have
    another, the rest is drawn at random. Where neurons have caps or signs, only connections that keep them are chosen.
    """

    block: int = BLOCK
    needs_gradient = True

    def __call__(self, growth: Growth) -> Tensor:
        wiring = growth.wiring
        if wiring.is_whole and wiring.fan_caps is None and not wiring.has_frozen:
            return grow_on_device(growth, self.block)
        found = [self._best(growth, layers, count) for layers, count in growth.regions]
        chosen = torch.cat(found) if found else growth.dead[:0]
        where = (growth.wiring, growth.survivors, growth.dead, growth.step)
        return draw_newborns(*where, chosen=chosen, counts=growth.counts)

    def _best(self, growth: Growth, layers: range, count: int) -> Tensor:
        fan_caps = growth.wiring.fan_caps
        if fan_caps is None:
            return best_of_blocks(growth, layers, count, self.block, growth.survivors, None).positions
        # Neurons have caps: from high to low scores, whatever there is still room for. Those that found none are out
        # of the race with their row or column, so each further look at the gradient sees the next best.
        room = Room(growth.wiring.geometry, fan_caps, growth.survivors)
        found: list[Tensor] = []
        while count:
            best = best_of_blocks(growth, layers, 2 * count + 64, self.block, room.occupied, room)
            if best.scores is None:
                break
            taken = room.take(best.positions[best.scores.sort(descending=True, stable=True).indices], count)
            found.append(taken)
            count -= taken.numel()
        return torch.cat(found).sort().values if found else growth.dead[:0]


def grow_on_device(growth: Growth, block: int) -> Tensor:
    """The same choice in arrays of known sizes: nobody waits to hear how many gradients are not 0."""
    wiring, number, device = growth.wiring, growth.dead.numel(), growth.dead.device
    chosen, missing = [], []
    for layers, count in growth.regions:
        best = torch.full((count,), NOTHING, device=device)
        scores = torch.zeros(count, dtype=wiring.theta.dtype, device=device)
        for layer, first, gradient in gradient_blocks(growth, layers, block):
            start = wiring.geometry.position_start[layer] + first * gradient.shape[0]
            own = _scores(growth, layer, first, gradient).t().reshape(-1)
            places = growth.survivors - start
            inside = (places >= 0) & (places < own.numel())
            taken = mask_of(torch.where(inside, places, own.numel()), own.numel() + 1)[:-1]
            scores = torch.cat([scores, torch.where(taken, 0.0, own)])
            best = torch.cat([best, torch.arange(start, start + own.numel(), device=device)])
            order = scores.sort(descending=True, stable=True).indices[:count]
            scores, best = scores[order], best[order]
        chosen.append(torch.where(scores > 0, best, NOTHING))
        missing.append(count - (scores > 0).sum())
    found = torch.cat(chosen) if chosen else growth.dead[:0]
    by_layer = growth.counts is not None
    wanted = torch.stack(missing) if missing else torch.zeros(1, dtype=torch.int64, device=device)
    if growth.counts is not None:
        of = torch.tensor([layers.start for layers, _ in growth.regions], device=device)
        wanted = torch.zeros(len(growth.counts), dtype=torch.int64, device=device).scatter_(0, of, wanted)
    occupied = torch.cat([growth.survivors, found]).sort().values
    drawn, _ = newborns_among(wiring, occupied, wanted, number, growth.step, by_layer)
    return torch.cat([found, drawn]).sort().values[:number]


def _scores(growth: Growth, layer: int, first: int, gradient: Tensor) -> Tensor:
    """How much each connection of these columns is wanted."""
    signs = growth.wiring.column_signs
    if signs is None:
        return gradient.abs()
    # Neurons with a sign: only what would let a weight of that sign grow.
    start = growth.wiring.geometry.column_start[layer] + first
    return towards_signs(gradient, signs[start : start + gradient.shape[1]], uphill=growth.uphill)


def best_of_blocks(growth: Growth, layers: range, count: int, block: int, taken: Tensor, room: Room | None) -> Best:
    """The ``count`` positions of these layers with the highest scores that are not ``taken``, where there is room."""
    best = Best(count, taken)
    for layer, first, gradient in gradient_blocks(growth, layers, block):
        n_out, width = gradient.shape
        scores = _scores(growth, layer, first, gradient)
        if room is not None:
            scores = scores * room.open_cells(layer, first, first + width)
        best.offer(growth.wiring.geometry.position_start[layer] + first * n_out, scores)
    return best


def towards_signs(gradient: Tensor, signs: Tensor, *, uphill: bool) -> Tensor:
    """How much the gradient lets weights of these signs grow, >= 0; where the sign is 0 (free), its size."""
    own = signs.to(gradient.dtype)
    return torch.where(own == 0, gradient.abs(), (own * gradient if uphill else -own * gradient).clamp(min=0))


def several_ranks() -> bool:
    """Whether gradients are averaged over the ranks of a process group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def averaged(gradient: Tensor) -> Tensor:
    """The mean over the ranks."""
    gradient = gradient.clone(memory_format=torch.contiguous_format)  # it may be a view of someone's
    dist.all_reduce(gradient)
    return gradient.div_(dist.get_world_size())


def gradient_blocks(growth: Growth, layers: range, block: int) -> Iterator[tuple[int, int, Tensor]]:
    """∂E/∂w of all weights of these layers, in blocks: (layer, first column, [n_out, columns])."""
    together = several_ranks()
    geometry, theta = growth.wiring.geometry, growth.wiring.theta
    for layer in layers:
        n_out, n_in, sources = geometry.n_out[layer], geometry.n_in[layer], growth.sources.get(layer, ())
        if growth.wiring.is_frozen(layer) or not (sources or together):  # the latter: not part of this loss
            continue
        width = max(1, block // max(1, n_out))
        for first in range(0, n_in, width):
            last = min(first + width, n_in)
            gradient = theta.new_zeros(n_out, last - first) if not sources else sources[0].block(first, last)
            for source in sources[1:]:
                gradient = gradient + source.block(first, last)
            yield layer, first, averaged(gradient) if together else gradient
