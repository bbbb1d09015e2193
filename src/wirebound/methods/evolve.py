"""Sparse training that replaces connections now and then: a drop rule, a grow rule and a schedule, in any combination.

    θ ← optimiser step                                  all K weights; they may cross zero
    if the schedule gives this step a share ζ > 0:
        for each layer (or for the wiring as a whole):
            the drop rule picks n <= ζ · K_layer connections, which become dormant
            the grow rule picks n dormant connections, which become active

Exactly K connections are active after every step. SET and RigL are two settings of it; a drop by sign with random growth
is the rewiring of DEEP R without its ℓ1 and noise, whose exact form is ``DeepR``.

A newborn starts with weight 0 or a small random one and with clean optimiser state, and Adam corrects its bias by its own
age. A connection that is dropped may be chosen again in the same step; it then starts like every newborn.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound import ops
from wirebound.methods.deep_r import layer_drifts
from wirebound.methods.drop import DropRule, Stock
from wirebound.methods.grow import GrowRule, Growth
from wirebound.methods.method import load_rows
from wirebound.methods.watching import Watching
from wirebound.methods.when import Every
from wirebound.ops.device.fixed import mask_of, places_of
from wirebound.ops.philox import Stream, stream_of
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.schedule import check_rate
from wirebound.wiring import Wiring, mapping


def drop_connections(wiring: Wiring, rule: DropRule, share: float, scope: str, step: int, signs: Tensor | None) -> Tensor:
    """Sorted indices of the connections that go: at most ``share`` of each layer, or of the wiring; none of a frozen one."""
    return torch.cat(dropped_of_each(wiring, rule, share, scope, step, signs))


def dropped_of_each(
    wiring: Wiring, rule: DropRule, share: float, scope: str, step: int, signs: Tensor | None
) -> list[Tensor]:
    """``drop_connections`` of each layer, or of the wiring."""
    theta = wiring.theta.detach()
    weights = mapping.weights(theta, wiring.packed_rows)
    gradient = torch.zeros_like(theta) if wiring.theta.grad is None else wiring.theta.grad
    gradient = mapping.weights(gradient, wiring.packed_rows)
    places = torch.arange(wiring.budget, device=theta.device)
    if scope == "layer":
        edges = enumerate(itertools.pairwise(wiring.bounds))
        stocks = [places[:0] if wiring.is_frozen(i) else places[a:b] for i, (a, b) in edges]
    else:
        stocks = [places[~wiring.in_frozen()] if wiring.has_frozen else places]
    dead = []
    for number, part in enumerate(stocks):
        stream = stream_of(Stream.DROP, wiring.index, layer=number)
        own = None if signs is None else signs[part]
        most = round(share * part.numel())
        stock = Stock(weights[part], gradient[part], own, wiring.seed, stream, step)
        dead.append(part[rule(stock, most)] if most else part[:0])
    return dead


def first_strength(wiring: Wiring, newborns: Tensor, scale: float, step: int) -> float | Tensor:
    """θ of newborns: 0, or ``scale`` · |N(0, 1)| / √n_in, the scale of a layer's first weights."""
    if not scale:
        return 0.0
    geometry, theta = wiring.geometry, wiring.theta
    stream, backend = stream_of(Stream.NEWBORN_WEIGHT, wiring.index), ops.backend_on(theta.device)
    nu = backend.normals(wiring.seed, stream, step, newborns.numel(), theta.device)
    starts = torch.tensor(geometry.position_start[1:], device=theta.device)
    layers = torch.searchsorted(starts, newborns, right=True)
    spread = torch.tensor([scale / math.sqrt(max(1, n)) for n in geometry.n_in], dtype=theta.dtype, device=theta.device)
    return nu.abs().to(theta.dtype) * spread[layers]


class Evolve(Watching):
    """Train a sparsified model and replace connections by rules of one's choice.

    Args:
        model: a model with sparse layers (``wb.sparsify``).
        optimizer: any torch optimiser that keeps state by element and holds the model's parameters.
        drop: which connections go (``wb.drop``).
        grow: which come instead (``wb.grow``).
        when: in which steps, and how many (``wb.when``).
        scope: ``"layer"``: every layer gets back what it loses; ``"global"``: layers of one budget may grow and shrink.
        newborn_scale: standard deviation of a newborn's weight in units of 1/√n_in; 0 starts it at 0.
    """

    name = "evolve"
    title = "Drop and grow"
    adapter: OptimizerAdapter

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, drop: DropRule, grow: GrowRule, when: Every,
        scope: str = "layer", newborn_scale: float = 0.0,
    ) -> None:  # fmt: skip
        if scope not in ("layer", "global"):
            raise ValueError(f"scope (={scope!r}) must be one of {('layer', 'global')}")
        check_rate("newborn_scale", newborn_scale)
        self.take(model, optimizer)
        self.drop, self.grow, self.when = drop, grow, when
        self.scope, self.newborn_scale = scope, newborn_scale
        self.adapter = OptimizerAdapter(optimizer, self.wirings)
        for wiring in self.wirings:
            wiring.release_signs_()
        self.signs = [self._signs(w) for w in self.wirings] if getattr(drop, "keeps_signs", False) else []
        self.attach()
        self.steps = 0

    @staticmethod
    def _signs(wiring: Wiring) -> Tensor:
        weights = mapping.weights(wiring.theta.detach(), wiring.packed_rows)
        constant = torch.where(wiring.negative_signs(wiring.positions()), -1.0, 1.0)
        return torch.where(weights == 0, constant, weights.sign()).to(torch.int8)

    def wants_sources(self, step: int) -> bool:
        return getattr(self.grow, "needs_gradient", False) and self.when.share(step) > 0

    def step_wiring(self, number: int, wiring: Wiring, step: int) -> tuple[list[int], list[int]]:
        none, lr = [0.0] * len(wiring.layers), self.adapter.lr(self.adapter.group(wiring))
        self.update(number, wiring, layer_drifts(wiring, none, none, none, step, lr), step, clamp=True)
        share = self.when.share(step)
        born = self._replace(number, wiring, share, step) if share else [0] * len(wiring.layers)
        return wiring.active_counts(), born

    def _replace(self, number: int, wiring: Wiring, share: float, step: int) -> list[int]:
        """Drop and grow in one wiring; newborns of each layer."""
        signs = self.signs[number] if self.signs else None
        bounds = wiring.bounds if self.scope == "layer" else []
        dropped = dropped_of_each(wiring, self.drop, share, self.scope, step, signs)
        dead = torch.cat(dropped)
        if not dead.numel():
            return [0] * len(wiring.layers)
        positions = wiring.positions()
        counts = None if self.scope == "global" else [len(own) for own in dropped]
        alive = places_of(~mask_of(dead, wiring.budget), wiring.budget - len(dead))
        sources = self.sources(wiring) if getattr(self.grow, "needs_gradient", False) else {}
        uphill = bool(self.adapter.group(wiring).get("maximize"))
        newborns = self.grow(Growth(wiring, positions[alive], positions[dead], counts, sources, step, uphill))
        carried: list[tuple[Tensor, float | Tensor]] = [*self.adapter.carried(number, self.adapter.group(wiring))]
        if signs is not None:
            carried.append((signs, torch.where(wiring.negative_signs(newborns), -1, 1).to(torch.int8)))
        strength = first_strength(wiring, newborns, self.newborn_scale, step)
        born = wiring.replace_(dead, newborns, carried, strength)[0]
        if counts is not None and wiring.is_whole:
            wiring.starts_at(bounds)  # layers got back what they lost
        return born

    def holds(self) -> list[tuple[str, list[Tensor], str]]:
        return [("signs at birth", list(self.signs), "K × one byte")]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **({"signs": [signs.clone() for signs in self.signs]} if self.signs else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_rows("signs", self.signs, state.get("signs", []))
        super().load_state_dict(state)
