"""DEEP R (Bellec et al. 2018, Algorithm 1): training and rewiring at once, exactly K connections after every step.

    for all active connections k (θ_k >= 0):
        θ_k ← θ_k − η ∂E/∂θ_k − η α + √(2 η T) ν_k
        if θ_k < 0: k becomes dormant
    while fewer than K are active:
        draw a dormant connection k' uniformly, activate it with θ_k' ← 0

η is the optimiser's current learning rate, α ``l1``, T ``temperature``, K the wiring's budget; − η ∂E/∂θ is the
optimiser's own step: SGD as in the paper, or any other that keeps state by element.

Differs from the paper in that Adam corrects its bias by the connection's own age, so that a newborn's first step is a
first step; in that several steps may pass between rewirings (``rewire_every``; θ then stops at 0 in between); and in
that newborns of a global budget are spread over the layers by their initial shares, as the authors' code does, unless
``newborns="uniform"``.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn, optim

from wirebound import ops, schedule
from wirebound.methods.declaration import L1, NEWBORNS, NOISE, TEMPERATURE, Setting
from wirebound.methods.method import WiringMethod
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.rule import DriftAndNoise
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.schedule import Noise, Rate, Scalar
from wirebound.wiring import Wiring

REWIRE_EVERY = Setting("rewire_every", "int", 1, "steps between rewirings", least=1)
_LAYER = "layer of a newborn in a global budget: uniform over all dormant, or by initial share"
SHARE = Setting("newborns", "str", "share", _LAYER, choices=NEWBORNS)


@torch.no_grad()
def algorithm_1(
    wiring: Wiring, eta: float, alpha: float, temperature: float, step: int, shares: Sequence[float] | None = None
) -> list[int]:
    """One step of Algorithm 1 with plain SGD, line by line; newborns of each layer. The kernels are tested against it."""
    theta, gradient = wiring.theta.detach(), wiring.theta.grad
    normals, stream = ops.backend_on(theta.device).normals, stream_of(Stream.NOISE, wiring.index)
    nu = normals(wiring.seed, stream, step, theta.numel(), theta.device)
    assert gradient is not None
    theta -= eta * gradient  # gradient
    theta -= eta * alpha  # ℓ1
    theta += math.sqrt(2 * eta * temperature) * nu.to(theta.dtype)  # noise
    dead = torch.nonzero(theta < 0).view(-1)  # death
    born, _ = wiring.rewire_(dead, [], step, shares) if dead.numel() else ([0] * len(wiring.layers), [])  # birth, at θ = 0
    return born


def pull_and_push(l1: Scalar, temperature: Scalar, step: int, lr: float) -> tuple[float, float]:
    """ηα and √(2ηT) of this step."""
    schedule.check_rate("lr", lr)  # schedulers give any, but noise has the variance 2ηT
    eta_t = lr * schedule.at("temperature", temperature, step, lr)
    return lr * schedule.at("l1", l1, step, lr), math.sqrt(2 * eta_t)


def layer_drifts(
    wiring: Wiring, l1: Sequence[Scalar], temperature: Sequence[Scalar], step: int, lr: float
) -> list[DriftAndNoise]:
    """ηα and √(2ηT) of each layer of a wiring, by the layer's own η; one drift for all where they are the same.

    ``l1`` and ``temperature`` begin with those of the wiring's first layer.
    """
    rates = wiring.layer_rates
    each = zip(rates.lr, rates.weight_decay, rates.frozen, l1, temperature, strict=False)
    own = [(*pull_and_push(alpha, heat, step, lr * f), f, decay, frozen) for f, decay, frozen, alpha, heat in each]
    if all(values == own[0] for values in own):
        return [DriftAndNoise(0, wiring.budget, *own[0])]
    return [DriftAndNoise(a, b, *values) for (a, b), values in zip(itertools.pairwise(wiring.bounds), own, strict=True)]


class LangevinMethod(WiringMethod):
    """A method on wirings with bound signs, whose θ are pulled by ηα and pushed by noise √(2ηT)."""

    adapter: OptimizerAdapter

    def take_rates(
        self, model: nn.Module, optimizer: optim.Optimizer, l1: Rate, noise: Noise, temperature: Rate | None
    ) -> None:
        """Note model, optimiser and rates, and bind the signs."""
        self.take(model, optimizer)
        self.adapter = OptimizerAdapter(optimizer, self.wirings, bound=True)
        names = [shape.name for shape in self.shapes]
        self.l1 = schedule.per_layer("l1", l1, names)
        self.temperature = schedule.temperatures(noise, temperature, names)
        heat = noise if temperature is None else temperature
        self._one_rate = not any(isinstance(rate, Sequence | Mapping) for rate in (l1, heat))
        self._rates_move = any(schedule.changes_with_step(rate) for rate in (*self.l1, *self.temperature))
        self._drifts: dict[int, tuple[tuple[float, Scalar, Scalar], list[DriftAndNoise]]] = {}
        for wiring in self.wirings:
            wiring.bind_signs_()

    def drifts(self, number: int, wiring: Wiring, step: int, lr: float) -> list[DriftAndNoise]:
        """ηα and √(2ηT) of this step for a wiring; the very list of the last step if nothing in it has changed."""
        first = sum(len(before.layers) for before in self.wirings[:number])
        if not self._one_rate or wiring.rates is not None:
            return layer_drifts(wiring, self.l1[first:], self.temperature[first:], step, lr)
        key, known = (lr, self.l1[first], self.temperature[first]), self._drifts.get(number)
        if known is None or known[0] != key or self._rates_move:
            drift = DriftAndNoise(0, wiring.budget, *pull_and_push(self.l1[first], self.temperature[first], step, lr))
            known = self._drifts[number] = (key, [drift])
        return known[1]


class DeepR(LangevinMethod):
    """Deep rewiring of a sparsified model.

    Args:
        model: a model with sparse layers (``wb.sparsify``).
        optimizer: any torch optimiser that keeps state by element and holds the model's parameters.
        l1: α, the pull of every active θ towards 0: a number, one for each layer, or a schedule.
        noise: g, noise of amplitude η g as in the authors' code, which is T = η g²/2: a number, or one for each layer.
        temperature: T instead of ``noise``, for noise √(2ηT): a number, one for each layer, or a schedule.
        rewire_every: deaths and births happen in every n-th step only.
        newborns: ``"share"``, the layer of each newborn is drawn in proportion to the layers' initial counts, or
            ``"uniform"``, over all dormant connections of the wiring (Algorithm 1 read literally).
    """

    name = "deep-r"
    title = "DEEP R"
    settings = (L1, NOISE, TEMPERATURE, REWIRE_EVERY, SHARE)

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, l1: Rate = L1.default, noise: Noise = NOISE.default,
        temperature: Rate | None = None, rewire_every: int = 1, newborns: str = "share",
    ) -> None:  # fmt: skip
        REWIRE_EVERY.check(rewire_every)
        SHARE.check(newborns)
        self.take_rates(model, optimizer, l1, noise, temperature)
        self.rewire_every, self.newborns = rewire_every, newborns
        self.shares = self._initial_shares()
        self.attach()

    def _initial_shares(self) -> list[list[float] | None]:
        """The layers' initial shares, where newborns follow them; one layer has nothing to share."""
        shared = [self.newborns != "uniform" and len(w.layers) > 1 for w in self.wirings]
        return [w.initial_counts.double().tolist() if s else None for w, s in zip(self.wirings, shared, strict=True)]

    def step_wiring(self, number: int, wiring: Wiring, step: int) -> tuple[list[int], list[int]]:
        theta, adapter, shares = wiring.theta, self.adapter, self.shares[number]
        group = adapter.group(wiring)
        drifts, clamp = self.drifts(number, wiring, step, adapter.lr(group)), step % self.rewire_every != 0
        if wiring.constrained or wiring.has_frozen:  # newborns are drawn among the positions that are allowed
            born, dead = [0] * len(wiring.layers), self.update(number, wiring, drifts, step, clamp=clamp)
            if dead.numel():
                born, _ = wiring.rewire_(dead, adapter.carried(number, group), step, shares)
            return wiring.layer_active, born
        rule, state = adapter.rule(number, group), adapter.state(number, group)
        before, carried = wiring.changing(), adapter.carried(number, group)
        take_step = ops.backend_of(theta).step_
        counts = take_step(wiring, theta, theta.grad, rule, state, drifts, carried, step, shares, clamp=clamp)
        return ops.numbers(counts.active), wiring.changed(before, counts.born, counts.died)[0]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.shares = self._initial_shares()  # of the wirings that were loaded, which may have started otherwise
