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

import torch
from torch import Tensor, nn, optim

from wirebound import ops
from wirebound.methods.declaration import L1, NOISE, TEMPERATURE, Setting
from wirebound.methods.langevin import LangevinMethod
from wirebound.methods.method import Unbounded
from wirebound.ops.philox import Stream, binomial, stream_of, uniform
from wirebound.schedule import Noise, Rate, Scalar
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
    chosen = places[ops.backend_on(places.device).sample_sorted(empty, births, wiring.seed, stream, step, places.device)]
    alive[chosen] = True
    edges = torch.searchsorted(chosen, torch.tensor(wiring.bounds, device=chosen.device))
    return edges.diff().tolist()


class ConstantRate(Unbounded, LangevinMethod):
    """Rewiring of a sparsified model in which dormant connections wake up at a constant rate.

    Args:
        model: a model with sparse layers (``wb.sparsify``); its budget is the most that can ever be active, and what
            it starts with.
        optimizer: any torch optimiser that keeps state by element and holds the model's parameters.
        rate: probability that a dormant connection is re-activated in a step, in [0, 1]: a number or a schedule.
        l1: α. A number, one for each layer, or a schedule.
        noise: g, noise of amplitude η g, which is T = η g²/2: a number, or one for each layer.
        temperature: T instead of ``noise``: a number, one for each layer, or a schedule.
    """

    name = "constant-rate"
    title = "Constant rate"
    settings = (
        Setting("rate", "float", 1e-5, "probability that a dormant connection is re-activated in a step", least=0, most=1),
        L1,
        NOISE,
        TEMPERATURE,
    )

    counts = "highest"

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, rate: Scalar = 1e-5, l1: Rate = L1.default,
        noise: Noise = NOISE.default, temperature: Rate | None = None,
    ) -> None:  # fmt: skip
        self.take_rates(model, optimizer, l1, noise, temperature)
        self.rate = rate if callable(rate) else _probability(rate)
        for wiring in self.wirings:
            wiring.keep_empty_places_()
        self.start_counting(self.layer_active())
        self.attach()

    def train(self, step: int) -> tuple[list[int], list[int]]:
        for wiring in self.wirings:
            alive = _alive(wiring)
            if wiring.theta.grad is not None and not alive.all():
                wiring.theta.grad.masked_fill_(~alive, 0)
        return super().train(step)

    def step_wiring(self, number: int, wiring: Wiring, step: int) -> tuple[list[int], list[int]]:
        theta, alive, adapter = wiring.theta.detach(), _alive(wiring), self.adapter
        group = adapter.group(wiring)
        lr = adapter.lr(group)
        gone = self.update(number, wiring, self.drifts(number, wiring, step, lr), step, clamp=False)
        carried = adapter.carried(number, group)
        died = gone[alive[gone]]
        alive[died] = False
        for moved, clean in carried:
            moved[died] = clean
        born = [0] * len(wiring.layers)
        if not alive.all():
            theta.masked_fill_(~alive, 0)  # the drift has moved empty places too
            rate = self.rate(step, lr) if callable(self.rate) else self.rate
            born = reactivate_(wiring, alive, _probability(rate), carried, step)
        return wiring.layer_active, born

    def holds(self) -> list[tuple[str, list[Tensor], str]]:
        return [("which places are in use", [_alive(wiring) for wiring in self.wirings], "K × one byte")]


def _alive(wiring: Wiring) -> Tensor:
    """Which places are in use; another method may have made the wiring its own."""
    if wiring.alive is None:
        raise ValueError("the wiring keeps no empty places any more: another method has taken it over")
    return wiring.alive


def _probability(rate: float) -> float:
    if not (math.isfinite(rate) and 0 <= rate <= 1):
        raise ValueError(f"rate (={rate}) must be in [0, 1]")
    return rate
