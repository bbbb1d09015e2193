"""Growth by the gradient of sampled candidates: O(K + candidates) memory, O(candidates · batch) time, nothing dense."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wirebound.methods.drop import smallest
from wirebound.methods.grow.gradient import averaged, several_ranks, towards_signs
from wirebound.methods.grow.growth import Growth
from wirebound.wiring import draw_dormant, draw_newborns
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
        found = [self._best(growth, layers, count) for layers, count in growth.regions]
        chosen = torch.cat(found) if found else growth.dead[:0]
        where = (growth.wiring, growth.survivors, growth.dead, growth.step)
        return draw_newborns(*where, chosen=chosen, counts=growth.counts)

    def _best(self, growth: Growth, layers: range, count: int) -> Tensor:
        positions = draw_candidates(growth, layers, count, self.candidates)
        scores = self._scores(growth, layers, positions)
        scored = torch.nonzero(scores > 0).view(-1)
        positions, scores = positions[scored], scores[scored]
        if (fan_caps := growth.wiring.fan_caps) is not None:  # from high to low, whatever there is still room for
            order = scores.sort(descending=True, stable=True).indices
            return Room(growth.wiring.geometry, fan_caps, growth.survivors).take(positions[order], count).sort().values
        return positions[smallest(scores.neg(), min(count, scores.numel()))]

    def _scores(self, growth: Growth, layers: range, positions: Tensor) -> Tensor:
        gradient, wiring = gradient_at(growth, layers, positions), growth.wiring
        if self.towards_sign:
            signs = torch.where(wiring.negative_signs(positions), -1, 1)
        elif wiring.column_signs is not None:
            signs = wiring.column_signs[wiring.geometry.locate(positions)[0]]
        else:
            return gradient.abs()
        return towards_signs(gradient, signs, uphill=growth.uphill)


def draw_candidates(growth: Growth, layers: Sequence[int], count: int, candidates: float) -> Tensor:
    """Sorted dormant positions of these layers, uniform without replacement: a multiple of their connections, or all."""
    wiring, places = growth.wiring, growth.wiring.layer_places
    wanted = max(count, round(candidates * sum(places[layer] for layer in layers)))
    return draw_dormant(wiring, growth.survivors, wanted, growth.step, [i for i in layers if not wiring.is_frozen(i)])


def gradient_at(growth: Growth, layers: Sequence[int], positions: Tensor) -> Tensor:
    """∂E/∂w at sorted positions of these layers; 0 where no backward pass has come by."""
    geometry, found, together = growth.wiring.geometry, list[Tensor](), several_ranks()
    edges = [geometry.position_start[layer] for layer in (*layers, layers[-1] + 1)]
    bounds = [0, positions.numel()]
    if len(layers) > 1:
        bounds = torch.searchsorted(positions, torch.tensor(edges, device=positions.device)).tolist()
    for number, layer in enumerate(layers):
        own = positions[bounds[number] : bounds[number + 1]] - edges[number]
        gradient = growth.wiring.theta.new_zeros(own.numel())
        if own.numel() and (sources := growth.sources.get(layer, ())):
            columns = own // geometry.n_out[layer]
            rows = own - columns * geometry.n_out[layer]
            for source in sources:
                gradient += source.at(rows, columns)
        found.append(gradient)
    gradient = found[0] if len(found) == 1 else torch.cat(found)
    return averaged(gradient) if together else gradient
