"""DEEP R (Bellec et al. 2018, Algorithm 1): training and rewiring at once, exactly K connections after every step.

    for all active connections k (θ_k >= 0):
        θ_k ← θ_k − η ∂E/∂θ_k − η α + √(2 η T) ν_k
        if θ_k < 0: k becomes dormant
    while fewer than K are active:
        draw a dormant connection k' uniformly, activate it with θ_k' ← 0

| symbol | here |
| --- | --- |
| η | the optimiser's current learning rate |
| α | ``l1`` |
| T | ``temperature`` |
| K | the wiring's budget |
| − η ∂E/∂θ | the optimiser's own step: SGD as in the paper, or any other that keeps state by element |

Differs from the paper in that Adam corrects its bias by the connection's own age, so that a newborn's first step is a
first step; in that several steps may pass between rewirings (``rewire_every``; θ then stops at 0 in between); and in
that newborns of a global budget are spread over the layers by their initial shares, as the authors' code does, unless
``newborns="uniform"``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn, optim

from wirebound import ops
from wirebound.methods.declaration import L1, NEWBORNS, NOISE, TEMPERATURE, Setting
from wirebound.methods.langevin import LangevinMethod
from wirebound.ops.philox import Stream, stream_of
from wirebound.schedule import Noise, Rate
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
    nu = ops.backend_on(theta.device).normals(wiring.seed, stream_of(Stream.NOISE, wiring.index), step, theta.numel(), theta.device)
    assert gradient is not None
    theta -= eta * gradient  # gradient
    theta -= eta * alpha  # ℓ1
    theta += math.sqrt(2 * eta * temperature) * nu.to(theta.dtype)  # noise
    dead = torch.nonzero(theta < 0).view(-1)  # death
    born, _ = wiring.rewire_(dead, [], step, shares) if dead.numel() else ([0] * len(wiring.layers), [])  # birth, at θ = 0
    return born


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
        return [
            None if self.newborns == "uniform" or len(w.layers) == 1 else [float(n) for n in w.initial_counts.tolist()]
            for w in self.wirings
        ]

    def step_wiring(self, number: int, wiring: Wiring, step: int) -> tuple[list[int], list[int]]:
        theta, adapter, shares = wiring.theta, self.adapter, self.shares[number]
        group = adapter.group(wiring)
        drifts, clamp = self.drifts(number, wiring, step, adapter.lr(group)), step % self.rewire_every != 0
        if wiring.constrained or wiring.has_frozen:  # newborns are drawn among the positions that are allowed
            dead = self.update(number, wiring, drifts, step, clamp=clamp)
            born = [0] * len(wiring.layers)
            if dead.numel():
                born, _ = wiring.rewire_(dead, adapter.carried(number, group), step, shares)
            return wiring.layer_active, born
        rule, state = adapter.rule(number, group), adapter.state(number, group)
        before, carried = wiring.changing(), adapter.carried(number, group)
        backend = ops.backend_of(theta)
        counts = backend.step_(wiring, theta, theta.grad, rule, state, drifts, carried, step, shares, clamp=clamp)
        return ops.numbers(counts.active), wiring.changed(before, counts.born, counts.died)[0]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.shares = self._initial_shares()  # of the wirings that were loaded, which may have started otherwise
