"""Growth by the gradient of sampled candidates: O(K + candidates) memory, O(candidates · batch) time, nothing dense."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from wirebound.methods.grow.gradient import averaged, several_ranks, towards_signs
from wirebound.methods.grow.growth import Growth
from wirebound.wiring import draw_dormant, draw_dormant_in_layers, draw_newborns
from wirebound.wiring.draw import per_layer
from wirebound.wiring.room import Room


@dataclass(frozen=True)
class SampledGradient:
    """The largest |∂E/∂w| among dormant connections that are drawn uniformly, as GSE grows (Heddes et al. 2024).

    Several backward passes, process groups, gradients of exactly 0, caps and signs of neurons: as ``Gradient``. With
    ``scope="global"`` candidates are drawn over all layers of the wiring, else over each layer.

    Args:
        candidates: how many are drawn, as a multiple of the active connections; at least as many as have to grow.
        towards_sign: every dormant connection has its constant sign, as in DEEP R: prefer those where − sign · ∂E/∂w is
            largest, and only if it is > 0, so that the next step lets the weight grow with its sign.
    """

    candidates: float = 1.0
    towards_sign: bool = False
    needs_gradient = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.candidates) and self.candidates > 0):
            raise ValueError(f"candidates (={self.candidates}) must be a finite number > 0")

    def __call__(self, growth: Growth) -> Tensor:
        positions, drawn = draw_candidates(growth, self.candidates)
        scores = self._scores(growth, positions)
        wanted, first = growth.counts or [growth.dead.numel()], 0
        room = None if (caps := growth.wiring.fan_caps) is None else Room(growth.wiring.geometry, caps, growth.survivors)
        found = [positions[:0]]
        for count, size in zip(wanted, drawn, strict=True):
            own, first = slice(first, first + size), first + size
            if count and size:
                found.append(best(positions[own], scores[own], count, room))
        chosen = torch.cat(found).sort().values
        if chosen.numel() == growth.dead.numel():
            return chosen
        where = (growth.wiring, growth.survivors, growth.dead, growth.step)
        return draw_newborns(*where, chosen=chosen, counts=growth.counts, open_columns=growth.open_columns)

    def _scores(self, growth: Growth, positions: Tensor) -> Tensor:
        gradient, wiring = gradient_at(growth, positions), growth.wiring
        if self.towards_sign:
            return torch.where(wiring.negative_signs(positions) ^ growth.uphill, gradient, -gradient)
        if wiring.column_signs is None:
            return gradient.abs()
        signs = wiring.column_signs[wiring.geometry.locate(positions)[0]]
        return towards_signs(gradient, signs, uphill=growth.uphill)


def draw_candidates(growth: Growth, candidates: float) -> tuple[Tensor, list[int]]:
    """Sorted dormant positions, uniform without replacement, as a multiple of the active ones, and how many they are: of
    each layer that grows, or anywhere in the wiring. At least as many as have to grow, where there are so many."""
    wiring, survivors, step = growth.wiring, growth.survivors, growth.step
    if growth.counts is None:
        positions = draw_dormant(wiring, survivors, max(growth.dead.numel(), round(candidates * wiring.budget)), step)
        return positions, [positions.numel()]
    places = zip(growth.counts, wiring.layer_places, strict=True)
    counts = [max(count, round(candidates * active)) if count else 0 for count, active in places]
    return draw_dormant_in_layers(wiring, survivors, counts, step, growth.open_columns)


def gradient_at(growth: Growth, positions: Tensor) -> Tensor:
    """∂E/∂w at sorted positions; 0 in layers that no backward pass has come by."""
    geometry, found, theta = growth.wiring.geometry, list[Tensor](), growth.wiring.theta.detach()
    numbers = per_layer(geometry, positions) if geometry.layers > 1 else [positions.numel()]
    for layer, own in enumerate(positions.split(numbers)):
        sources, gradient = growth.sources.get(layer, ()), None
        if own.numel() and sources:
            local, n_out = own - geometry.position_start[layer], geometry.n_out[layer]
            columns = local // n_out
            rows = local - columns * n_out
            for source in sources:
                gradient = source.at(rows, columns) if gradient is None else gradient + source.at(rows, columns)
        found.append(theta.new_zeros(own.numel()) if gradient is None else gradient)
    gradient = torch.cat(found)
    return averaged(gradient) if several_ranks() else gradient


def best(positions: Tensor, scores: Tensor, count: int, room: Room | None) -> Tensor:
    """The positions with the highest scores > 0, at most ``count``, and those only that there is still room for."""
    if room is None:
        values, places = scores.topk(min(count, scores.numel()))
        return positions[places[values > 0]]
    values, order = scores.sort(descending=True, stable=True)
    return room.take(positions[order[values > 0]], count)
