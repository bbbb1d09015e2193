"""``l1="auto"``: α from how many connections shall be replaced, measured while training.

Every n steps (25 at first, later 100) one look at some connections of each layer:

    1. those that were drawn at the last look and are still there have wandered by s √n (root mean square, as a share of
       the layer's mean θ); they are established from now on
    2. of those that were established before, D are gone; at the wanted turnover, κ s in a step, it would be E
    3. log α ← log α + GAIN (1 − D/E − B/M): B newborns against M bound how much of the wiring may flicker
    4. others are drawn, to be established at the next look

κ, ``turnover``, is the one number: the share of the connections that is replaced in the time in which a connection
moves by its own strength. s falls with η, and the turnover with it. Most newborns die within a few steps, since they
start at θ = 0: they are never established, so they count as flicker only.

α is the price of a connection in its budget: one number for a wiring, so that layers which share a budget compete for
it by what their connections are worth. The first α, and bounds for all later ones, follow from the prior that the paper
gives α: chance alone would spread θ exponentially with the mean D/(ηα), in which D = s²/2 · mean² is the diffusion of a
step, so that ηα = s²/2 · mean holds such connections at the strength that the layer has.

In layers where a step leaves those alone who have no gradient (``lazy``), time runs by the steps in which a connection has
one: n is the number of steps times the share of connections that have a gradient in a step. Newborns that are still at
θ = 0, since their input did not come back yet, do not count in the layer's mean; and s is at most 1, because the first weights
of a layer with a million inputs are smaller than a step, and growing from there is no wandering.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound import ops, schedule
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring import Wiring, mean_of

PERIODS, EARLY = (25, 100), 500  # steps between looks, of those that rewire: early in a run, and later
FOLLOWED = 512  # connections of a layer that are followed, at most
FLICKER = 0.3  # share of a wiring that may be newborn in a step
GAIN, LONGEST = 0.5, 0.5  # of a correction of log α
FEW = 10  # deaths that are expected: where it is fewer, chance decides, and corrections are smaller
FIRST, LEAST, MOST = 1.4, 2e-3, 100.0  # α in units of the prior's: at the start, and its bounds


def next_look(step: int, rewire_every: int) -> int:
    """The step of the next look after this one."""
    every = rewire_every * PERIODS[step >= EARLY]
    return (step // every + 1) * every


class Price:
    """α of the layers of one wiring, as a schedule; O(layers) state."""

    follows_lr = True  # it stands still between looks

    def __init__(self, wiring: Wiring, turnover: float) -> None:
        self.wiring, self.turnover = wiring, turnover
        self.alpha, self.newborns, self.looked = 0.0, 0, 0  # newborns since the last look, and its step
        nobody = torch.empty(0, dtype=torch.int64, device=wiring.theta.device)
        self.drawn = self.established = nobody  # sorted positions
        self.strength = nobody.to(wiring.theta.dtype)  # of those that were drawn

    def __call__(self, step: int, lr: float) -> float:
        return self.alpha

    @torch.no_grad()
    def look(self, step: int, lr: float, touched: Sequence[float] | None = None) -> None:
        """Compare what became of the connections that are followed with what was wanted; ``lr`` is η now, and ``touched``
        the share of each layer's connections that a step judges, 1 where it judges all."""
        wiring, theta, period = self.wiring, self.wiring.theta.detach(), step - self.looked
        sizes, rates = wiring.layer_places, wiring.layer_rates
        asked = torch.cat((self.drawn, self.established))
        # A few hundred numbers: numpy counts them in less time than torch needs to begin.
        places = ops.backend_on(theta.device).find(wiring, asked).cpu().numpy()
        positions, n = asked.cpu().numpy(), self.drawn.numel()
        (stayed,) = (places[:n] >= 0).nonzero()
        established = positions[stayed]
        lists = (established, positions[n:], positions[n:][places[n:] >= 0])
        edges = np.array(wiring.geometry.position_start)
        met, followed, still_there = (_differences(some.searchsorted(edges).tolist()) for some in lists)
        at, was_at = (torch.from_numpy(indices).to(theta.device) for indices in (places[stayed], stayed))
        wandered = (theta.index_select(0, at) - self.strength.index_select(0, was_at)).square().split(met)
        expected = died = prior = count = 0.0
        for layer, (own, squares, size) in enumerate(zip(theta.split(sizes), wandered, sizes, strict=True)):
            share = 1.0 if touched is None else touched[layer]
            if share < 1:
                own = own[own > 0]
            square, mean, rate = mean_of(squares), mean_of(own), rates.lr[layer]
            if not share or not square or not mean or not rate or rates.frozen[layer]:
                continue
            steps = period * share
            s = math.sqrt(square / steps) / mean
            if share < 1:
                s = min(s, 1.0)
            dormant = max(0.0, 1 - size / _possible(wiring, layer))  # a full layer can replace nothing
            expected += followed[layer] * -math.expm1(-steps * self.turnover * s * dormant)
            died += followed[layer] - still_there[layer]
            prior += size * s * s / 2 * mean / rate
            count += size
        self.established, flicker = torch.from_numpy(established).to(theta.device), int(self.newborns)
        self.newborns, self.looked = 0, step
        self.drawn, self.strength = _draw(wiring, step)
        if not count or not lr:
            return
        if not self.alpha:
            self.alpha = FIRST * prior / count / lr
        elif expected:
            excess = died / expected + flicker / (FLICKER * wiring.budget * period)
            change = GAIN * (1 - excess) * expected / (expected + FEW)
            self.alpha *= math.exp(max(-LONGEST, min(LONGEST, change)))
        self.alpha = max(LEAST * prior / count / lr, min(MOST * prior / count / lr, self.alpha))

    def state_dict(self) -> dict[str, Any]:
        """All that the next look needs; what is followed has -1 behind its end, so that shapes are always the same."""
        size = len(self.wiring.layers) * min(FOLLOWED, self.wiring.budget)
        followed = {name: F.pad(t, (0, size - t.numel()), value=-1) for name, t in self.followed().items()}
        return {"alpha": self.alpha, "newborns": int(self.newborns), "looked": self.looked, **followed}

    def followed(self) -> dict[str, Tensor]:
        return {"drawn": self.drawn, "strength": self.strength, "established": self.established}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` unless a state of the right shapes also makes sense."""
        for name in ("alpha", "newborns", "looked"):
            schedule.check_rate(name, state[name])
        for name in ("drawn", "established"):
            found = state[name][state[name] >= 0]
            if found.numel() and (bool((found.diff() <= 0).any()) or int(found[-1]) >= self.wiring.geometry.possible):
                raise ValueError(f"{name} must be sorted positions below {self.wiring.geometry.possible}")
        if not torch.isfinite(state["strength"]).all():
            raise ValueError("strength must be finite")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.check_state(state)
        self.alpha, self.newborns, self.looked = float(state["alpha"]), int(state["newborns"]), int(state["looked"])
        theta, drawn = self.wiring.theta, state["drawn"] >= 0
        self.drawn = state["drawn"][drawn].to(theta.device)
        self.strength = state["strength"][drawn].to(theta.device, theta.dtype)
        self.established = state["established"][state["established"] >= 0].to(theta.device)


class Turnover:
    """The prices of some wirings."""

    def __init__(self, wirings: Sequence[Wiring], turnover: float) -> None:
        self.prices = [Price(wiring, turnover) for wiring in wirings]

    @property
    def l1(self) -> list[Price]:
        """α of each layer of all wirings."""
        return [price for price in self.prices for _ in price.wiring.layers]

    def add(self, newborns: Sequence[int]) -> None:
        """Count the newborns of each layer."""
        first = 0
        for price in self.prices:
            last = first + len(price.wiring.layers)
            price.newborns += sum(newborns[first:last])
            first = last

    def state_dict(self) -> list[dict[str, Any]]:
        return [price.state_dict() for price in self.prices]

    def load_state_dict(self, state: Sequence[Mapping[str, Any]]) -> None:
        if len(state) != len(self.prices):
            raise ValueError(f"state has α of {len(state)} wirings, but the method has {len(self.prices)}")
        for price, own in zip(self.prices, state, strict=True):
            price.check_state(own)
        for price, own in zip(self.prices, state, strict=True):
            price.load_state_dict(own)


def _possible(wiring: Wiring, layer: int) -> int:
    """Positions that a layer's connections may have: with sparse inputs, at columns that occur."""
    shape, seen = wiring.layers[layer], (wiring.seen or {}).get(layer)
    return shape.possible if seen is None else max(1, seen.count * shape.n_out)


def _differences(numbers: Sequence[int]) -> list[int]:
    return [b - a for a, b in itertools.pairwise(numbers)]


def _draw(wiring: Wiring, step: int) -> tuple[Tensor, Tensor]:
    """Sorted positions of some connections of every layer, or of all, and their θ."""
    theta, found, bounds = wiring.theta.detach(), list[Tensor](), wiring.bounds
    device, seed, index = theta.device, wiring.seed, wiring.index
    backend = ops.backend_on(device)
    for layer, (first, last) in enumerate(itertools.pairwise(bounds)):
        stream, size = stream_of(Stream.FOLLOWED, index, layer=layer), last - first
        found.append(backend.sample_sorted(size, min(FOLLOWED, size), seed, stream, step, device).add_(first))
    places = torch.cat(found)
    return backend.positions_at(wiring, places), theta.index_select(0, places)
