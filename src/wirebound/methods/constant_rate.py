"""soft-DEEP R without its dormant connections: silent ones are re-activated at a constant rate.

The paper names this approximation of Algorithm 2 (section 4): "silent connections are re-activated at a constant
rate". Nothing has to be simulated for a dormant connection then, so only as many places are stored as may be active.

    for all active connections k (θ_k >= 0):
        θ_k ← θ_k − η ∂E/∂θ_k − η α + √(2 η T) ν_k
        if θ_k < 0: k becomes dormant, its place is empty
    B ~ Binomial(number of dormant connections, r)
    activate min(B, empty places) connections with θ ← 0, drawn uniformly among the dormant ones

| symbol | here |
| --- | --- |
| η, α, T | as in ``DeepR``: the learning rate, ``l1``, ``temperature`` |
| r | ``rate``, the probability that a dormant connection is re-activated in a step |
| places | the wiring's K: never are more than that active, but there may be fewer |

Differs from the paper's sentence in that there is a highest number, the wiring's, and from soft-DEEP R in that a
re-activated connection starts at θ = 0 exactly. With a rate that always fills all places this is DEEP R.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound import ops, schedule
from wirebound.methods.drifts import layer_drifts
from wirebound.methods.highest import HasHighest, Highest
from wirebound.methods.matrices import load_rows
from wirebound.methods.method import StepInfo, WiringMethod, leave_valid, require_finite
from wirebound.ops.draws import binomial, uniform
from wirebound.ops.philox import Stream, stream_of
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.schedule import Rate, Scalar
from wirebound.wiring import Wiring


@torch.no_grad()
def reactivate_(wiring: Wiring, alive: Tensor, rate: float, carried: list[tuple[Tensor, float]], step: int) -> list[int]:
    """Bring dormant connections to life at this rate, as far as there are empty places; how many in each layer."""
    vacant = ~alive
    possible = wiring.possible
    if wiring.has_frozen:  # nobody wakes up there, and empty places stay where they are
        frozen = wiring.layer_rates.frozen
        vacant &= ~wiring.in_frozen()
        possible = sum(layer.possible for layer, still in zip(wiring.layers, frozen, strict=True) if not still)
        active = sum(n for n, still in zip(wiring.layer_active, frozen, strict=True) if not still)
    else:
        active = int(alive.sum())
    empty = int(vacant.sum())
    u = uniform(wiring.seed, stream_of(Stream.OTHER, wiring.index), step)
    births = min(empty, binomial(possible - active, rate, u))
    if not births:
        return [0] * len(wiring.layers)
    # All empty places move to dormant positions drawn anew, and a random choice of them comes to life: so each dormant
    # connection is as likely as any other, those that empty places stood for included.
    held = alive.to(torch.int32)
    wiring.rewire_(torch.nonzero(vacant).view(-1), [*carried, (held, 0)], step, None)
    alive.copy_(held)
    vacant = ~alive
    places = torch.nonzero(vacant & ~wiring.in_frozen() if wiring.has_frozen else vacant).view(-1)
    stream = stream_of(Stream.OTHER, wiring.index, layer=0)
    chosen = places[ops.sample_sorted(empty, births, wiring.seed, stream, step, places.device)]
    alive[chosen] = True
    edges = torch.searchsorted(chosen, torch.tensor(wiring.bounds, device=chosen.device))
    return edges.diff().tolist()


class ConstantRate(HasHighest, WiringMethod):
    """Rewiring of a sparsified model in which dormant connections wake up at a constant rate.

    Args:
        model: a model with sparse layers (``wb.sparsify``); its budget is the most that can ever be active, and what
            it starts with.
        optimizer: any torch optimiser that keeps state by element and holds the model's parameters.
        rate: probability that a dormant connection is re-activated in a step, in [0, 1]: a number or a schedule.
        l1: α. A number, one for each layer, or a schedule.
        temperature: T. A number, one for each layer, or a schedule.
    """

    promises_budget = False
    counts = "highest"

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        *,
        rate: Scalar = 1e-5,
        l1: Rate = 1e-4,
        temperature: Rate = 0.0,
    ) -> None:
        self.take(model, optimizer)
        if not callable(rate):
            _probability(rate)
        self.rate = rate
        self.adapter = OptimizerAdapter(optimizer, self.wirings, bound=True)
        names = [shape.name for shape in self.shapes]
        self.l1 = schedule.per_layer("l1", l1, names)
        self.temperature = schedule.per_layer("temperature", temperature, names)
        self.steps = 0
        for wiring in self.wirings:
            wiring.bind_signs_()
            wiring.keep_empty_places_()
        self.claim()
        self.highest = Highest(self.layer_active())

    def step(self) -> StepInfo:
        if not self.may_step():
            return self.no_step()
        require_finite(self.wirings, self.steps + 1)
        self.adapter.require_rates()
        self.steps += 1
        try:
            return self._step()
        except BaseException:  # an interrupt, or an error, between the update and the births
            leave_valid(self.wirings)
            raise

    def _step(self) -> StepInfo:
        for wiring in self.wirings:
            alive = _alive(wiring)
            if wiring.theta.grad is not None and not alive.all():
                wiring.theta.grad.masked_fill_(~alive, 0)
        self.adapter.step_torch(self.steps)
        rewired: list[int] = []
        for number, wiring in enumerate(self.wirings):
            if wiring.theta.grad is None:  # not part of this loss: as torch does, leave it alone
                rewired += [0] * len(wiring.layers)
            else:
                rewired += self._step_wiring(number, wiring, first_layer=len(rewired))
        active = self.layer_active()
        self.highest.see(active)
        return StepInfo(self.steps, sum(active), None, sum(rewired), self.shapes, active, rewired)

    @torch.no_grad()
    def _step_wiring(self, number: int, wiring: Wiring, first_layer: int) -> list[int]:
        theta, alive, step = wiring.theta.detach(), _alive(wiring), self.steps
        group = self.adapter.group(wiring)
        lr = self.adapter.lr(group)
        drifts = layer_drifts(wiring, self.l1[first_layer:], self.temperature[first_layer:], step, lr)
        rule, state = self.adapter.rule(number, group), self.adapter.state(number, group)
        noise = stream_of(Stream.NOISE, wiring.index)
        grad = wiring.theta.grad
        gone = ops.update_(
            theta, grad, rule, state, drifts, wiring.seed, noise, step, sign_bound=True, clamp=False
        )
        carried = self.adapter.carried(number, group)
        died = gone[alive[gone]]
        alive[died] = False
        for moved, clean in carried:
            moved[died] = clean
        if alive.all():
            return [0] * len(wiring.layers)
        theta.masked_fill_(~alive, 0)  # the drift has moved empty places too
        rate = self.rate(step, lr) if callable(self.rate) else self.rate
        return reactivate_(wiring, alive, _probability(rate), carried, step)

    def holds(self) -> list[tuple[str, list[Tensor], str]]:
        return [("which places are in use", [_alive(wiring) for wiring in self.wirings], "K × one byte")]

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "highest": self.highest.state_dict(), **self.adapter.ages()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_rows("born", self.adapter.born, state["born"])
        self.adapter.load_updates(state)
        self.steps = int(state["steps"])
        self.highest.load_state_dict(state["highest"])


def _alive(wiring: Wiring) -> Tensor:
    """Which places are in use; another method may have made the wiring its own."""
    if wiring.alive is None:
        raise ValueError("the wiring keeps no empty places any more: another method has taken it over")
    return wiring.alive


def _probability(rate: float) -> float:
    if not (math.isfinite(rate) and 0 <= rate <= 1):
        raise ValueError(f"rate (={rate}) must be in [0, 1]")
    return rate
