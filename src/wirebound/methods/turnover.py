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
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound import ops, schedule
from wirebound.ops.layout import rows_of
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
    def look(self, step: int, lr: float) -> None:
        """Compare what became of the connections that are followed with what was wanted; ``lr`` is η now."""
        wiring, period = self.wiring, step - self.looked
        places, there = find(wiring, self.drawn)
        wandered = _squares(wiring, self.drawn[there], wiring.theta.detach()[places[there]] - self.strength[there])
        followed = _by_layer(wiring, self.established)
        still_there = _by_layer(wiring, self.established[find(wiring, self.established)[1]])
        expected = died = prior = count = 0.0
        for layer, (square, rate) in enumerate(zip(wandered, wiring.layer_rates.lr, strict=True)):
            mean = mean_of(wiring.theta.detach()[slice(*wiring.bounds[layer : layer + 2])])
            if not square or not mean or not rate or wiring.is_frozen(layer):
                continue
            s = math.sqrt(square / period) / mean
            dormant = 1 - wiring.layer_places[layer] / wiring.layers[layer].possible  # a full layer can replace nothing
            expected += followed[layer] * -math.expm1(-period * self.turnover * s * dormant)
            died += followed[layer] - still_there[layer]
            prior += wiring.layer_places[layer] * s * s / 2 * mean / rate
            count += wiring.layer_places[layer]
        self.established, flicker, self.newborns, self.looked = self.drawn[there], self.newborns, 0, step
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
        return {"alpha": self.alpha, "newborns": self.newborns, "looked": self.looked, **followed}

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


def _draw(wiring: Wiring, step: int) -> tuple[Tensor, Tensor]:
    """Sorted positions of some connections of every layer, or of all, and their θ."""
    device, found = wiring.theta.device, list[Tensor]()
    sample = ops.backend_on(device).sample_sorted
    for layer, (first, last) in enumerate(itertools.pairwise(wiring.bounds)):
        stream = stream_of(Stream.FOLLOWED, wiring.index, layer=layer)
        found.append(first + sample(last - first, min(FOLLOWED, last - first), wiring.seed, stream, step, device))
    places = torch.cat(found)
    columns = torch.searchsorted(wiring.colptr, places, right=True) - 1
    return wiring.geometry.position_of(columns, rows_of(wiring.packed_rows[places])), wiring.theta.detach()[places]


def find(wiring: Wiring, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Where the connections at these positions are stored, and whether there are any; a search in the column of each."""
    packed_rows, colptr = wiring.packed_rows, wiring.colptr
    columns, rows = wiring.geometry.locate(positions)
    low, end = colptr[columns], colptr[columns + 1]
    high, last = end, max(0, packed_rows.numel() - 1)
    longest = int((end - low).max()) if positions.numel() else 0
    for _ in range(longest.bit_length()):
        middle = (low + high) >> 1
        below = (rows_of(packed_rows[middle.clamp(max=last)]) < rows) & (low < high)
        low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
    places = low.clamp(max=last)
    return places, (low < end) & (rows_of(packed_rows[places]) == rows)


def _by_layer(wiring: Wiring, positions: Tensor) -> list[int]:
    """How many of these sorted positions are in each layer."""
    edges = torch.tensor(wiring.geometry.position_start, device=positions.device)
    return torch.searchsorted(positions, edges).diff().tolist()


def _squares(wiring: Wiring, positions: Tensor, moved: Tensor) -> list[float]:
    """The mean square in each layer of what belongs to these sorted positions; 0 of none."""
    parts = moved.split(_by_layer(wiring, positions))
    return [float(part.square().mean()) if part.numel() else 0.0 for part in parts]
