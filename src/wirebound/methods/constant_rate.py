"""soft-DEEP R without its dormant connections: silent ones are re-activated at a constant rate.

The paper names this approximation of Algorithm 2 (section 4): "silent connections are re-activated at a constant
rate". Nothing is simulated for a dormant connection then, so only as many places are stored as may be active.

    for all active connections k (θ_k >= 0):
        θ_k ← θ_k − η ∂E/∂θ_k − η α + √(2 η T) ν_k
        if θ_k < 0: k becomes dormant, its place is empty
    B ~ Binomial(number of dormant connections, r)
    activate min(B, empty places) connections with θ ← 0, drawn uniformly among the dormant ones

η, α and T are as in ``DeepR``, r is ``rate``. The places are the wiring's K: never are more active, perhaps fewer.

Differs from the paper's sentence in that there is a highest number, the wiring's, and from soft-DEEP R in that a
re-activated connection starts at θ = 0 exactly. With a rate that always fills all places this is DEEP R.
"""

import torch
from torch import Tensor, nn, optim

from wirebound import ops
from wirebound.methods.declaration import L1, NOISE, TEMPERATURE, Setting
from wirebound.methods.deep_r import LangevinMethod
from wirebound.methods.method import Unbounded
from wirebound.methods.when import check_share
from wirebound.ops.philox import Stream, binomial, stream_of, uniform
from wirebound.schedule import Noise, Rate, Scalar
from wirebound.wiring import Wiring

RATE = Setting("rate", "float", 1e-5, "probability that a dormant connection is re-activated in a step", least=0, most=1)


@torch.no_grad()
def reactivate_(wiring: Wiring, alive: Tensor, rate: float, carried: list[tuple[Tensor, float]], step: int) -> list[int]:
    """Bring dormant connections to life at this rate, as far as there are empty places; how many in each layer."""

    def vacant() -> Tensor:  # nobody wakes up in a frozen layer, and its empty places stay where they are
        return torch.nonzero(~alive & ~wiring.in_frozen() if wiring.has_frozen else ~alive).view(-1)

    counts = zip(wiring.layers, wiring.layer_active, wiring.layer_rates.frozen, strict=True)
    dormant = sum(layer.possible - active for layer, active, still in counts if not still)
    empty = vacant()
    births = min(empty.numel(), binomial(dormant, rate, uniform(wiring.seed, stream_of(Stream.OTHER, wiring.index), step)))
    if not births:
        return [0] * len(wiring.layers)
    # All empty places move to dormant positions drawn anew, and a random choice of them comes to life: so each dormant
    # connection is as likely as any other, those that empty places stood for included.
    held = alive.to(torch.int32)
    wiring.rewire_(empty, [*carried, (held, 0)], step, None)
    alive.copy_(held)
    places, stream = vacant(), stream_of(Stream.OTHER, wiring.index, layer=0)
    sample = ops.backend_on(places.device).sample_sorted
    chosen = places[sample(empty.numel(), births, wiring.seed, stream, step, places.device)]
    alive[chosen] = True
    return torch.searchsorted(chosen, torch.tensor(wiring.bounds, device=chosen.device)).diff().tolist()


class ConstantRate(Unbounded, LangevinMethod):
    """Rewiring of a sparsified model in which dormant connections wake up at a constant rate.

    Args:
        model: a model with sparse layers (``wb.sparsify``), whose budget is the start and the most that can be active.
        optimizer: any torch optimiser that keeps state by element and holds the model's parameters.
        rate: probability that a dormant connection is re-activated in a step, in [0, 1]: a number or a schedule.
        l1: α. A number, one for each layer, or a schedule.
        noise: g, noise of amplitude η g, which is T = η g²/2: a number, or one for each layer.
        temperature: T instead of ``noise``: a number, one for each layer, or a schedule.
    """

    name = "constant-rate"
    title = "Constant rate"
    settings = (RATE, L1, NOISE, TEMPERATURE)
    counts = "highest"

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, rate: Scalar = RATE.default, l1: Rate = L1.default,
        noise: Noise = NOISE.default, temperature: Rate | None = None,
    ) -> None:  # fmt: skip
        self.take_rates(model, optimizer, l1, noise, temperature)
        self.rate = rate if callable(rate) else check_share("rate", rate)
        for wiring in self.wirings:
            wiring.keep_empty_places_()
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
        died, carried = gone[alive[gone]], adapter.carried(number, group)
        alive[died] = False
        for moved, clean in carried:
            moved[died] = clean
        born = [0] * len(wiring.layers)
        if not alive.all():
            theta.masked_fill_(~alive, 0)  # the drift has moved empty places too
            rate = self.rate(step, lr) if callable(self.rate) else self.rate
            born = reactivate_(wiring, alive, check_share("rate", rate), carried, step)
        return wiring.layer_active, born

    def holds(self) -> list[tuple[str, list[Tensor], str]]:
        return [("which places are in use", [_alive(wiring) for wiring in self.wirings], "K × one byte")]


def _alive(wiring: Wiring) -> Tensor:
    """Which places are in use; another method may have made the wiring its own."""
    if wiring.alive is None:
        raise ValueError("the wiring keeps no empty places any more: another method has taken it over")
    return wiring.alive
