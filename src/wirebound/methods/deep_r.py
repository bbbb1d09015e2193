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
that newborns of a global budget may also be spread over the layers by their initial shares, as the authors' code does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn, optim

from wirebound import ops, schedule
from wirebound.methods.drifts import layer_drifts
from wirebound.methods.langevin import pull_and_push
from wirebound.methods.method import StepInfo, WiringMethod, leave_valid, require_finite
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.rule import DriftAndNoise, StepCounts
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.schedule import Rate, Scalar
from wirebound.wiring import Wiring

NEWBORNS = ("uniform", "share")


def deep_r_step(
    wiring: Wiring,
    adapter: OptimizerAdapter,
    number: int,
    group: dict[str, Any],
    drifts: list[DriftAndNoise],
    step: int,
    *,
    rewire: bool,
    shares: list[float] | None,
) -> StepCounts:
    """Algorithm 1 for one wiring, after torch has stepped the rest of the model; what happened in each layer."""
    if wiring.constrained or wiring.has_frozen:
        return _constrained_step(wiring, adapter, number, group, drifts, step, rewire=rewire, shares=shares)
    theta, before = wiring.theta, wiring.changing()
    counts = ops.step_(
        wiring.geometry,
        wiring.colptr,
        wiring.packed_rows,
        theta,
        theta.grad,
        adapter.rule(number, group),
        adapter.state(number, group),
        drifts,
        adapter.carried(number, group),
        wiring.seed,
        wiring.index,
        step,
        shares,
        clamp=not rewire,
    )
    wiring.changed(before, counts.born, counts.died)
    return counts


def _constrained_step(
    wiring: Wiring,
    adapter: OptimizerAdapter,
    number: int,
    group: dict[str, Any],
    drifts: list[DriftAndNoise],
    step: int,
    *,
    rewire: bool,
    shares: list[float] | None,
) -> StepCounts:
    """The same where neurons have caps or signs, or layers are frozen: newborns are then drawn among the positions
    that are allowed."""
    theta, noise = wiring.theta, stream_of(Stream.NOISE, wiring.index)
    rule, state = adapter.rule(number, group), adapter.state(number, group)
    dead = ops.update_(
        theta.detach(), theta.grad, rule, state, drifts, wiring.seed, noise, step, sign_bound=True, clamp=not rewire
    )
    born, died = [0] * len(wiring.layers), [0] * len(wiring.layers)
    if dead.numel():
        born, died = wiring.rewire_(dead, adapter.carried(number, group), step, shares)
    return StepCounts(born, died, wiring.layer_active)


class DeepR(WiringMethod):
    """Deep rewiring of a sparsified model.

    Args:
        model: a model with sparse layers (``wb.sparsify``).
        optimizer: any torch optimiser that keeps state by element and holds the model's parameters.
        l1: α, the pull of every active θ towards 0. A number, one for each layer, or a schedule.
        temperature: T, which sets the noise √(2ηT). A number, one for each layer, or a schedule;
            ``wb.schedule.noise_amplitude(g)`` gives T = η g²/2, noise of amplitude η g as in the authors' code.
        rewire_every: deaths and births happen in every n-th step only.
        newborns: ``"uniform"`` over all dormant connections of the wiring (Algorithm 1 read literally), or
            ``"share"``: the layer of each newborn is drawn in proportion to the layers' initial counts.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        *,
        l1: Rate = 1e-4,
        temperature: Rate = 0.0,
        rewire_every: int = 1,
        newborns: str = "uniform",
    ) -> None:
        if rewire_every < 1:
            raise ValueError(f"rewire_every (={rewire_every}) must be >= 1")
        if newborns not in NEWBORNS:
            raise ValueError(f"newborns (={newborns!r}) must be one of {NEWBORNS}")
        self.take(model, optimizer)
        self.adapter = OptimizerAdapter(optimizer, self.wirings, bound=True)
        names = [shape.name for shape in self.shapes]
        self.l1 = schedule.per_layer("l1", l1, names)
        self.temperature = schedule.per_layer("temperature", temperature, names)
        self.rates_are_one = all(not isinstance(rate, Sequence | Mapping) for rate in (l1, temperature))
        self._rates_move = any(schedule.changes_with_step(rate) for rate in (*self.l1, *self.temperature))
        self._drifts: dict[int, tuple[tuple[float, tuple[Scalar, Scalar]], list[DriftAndNoise]]] = {}
        self.rewire_every = rewire_every
        self.newborns = newborns
        self.shares = self._initial_shares()
        self.budget = sum(w.budget for w in self.wirings)
        self.steps = 0
        for wiring in self.wirings:
            wiring.bind_signs_()
        self.claim()

    def _initial_shares(self) -> list[list[float] | None]:
        """The layers' initial shares, where newborns follow them; one layer has nothing to share."""
        return [
            None if self.newborns == "uniform" or len(w.layers) == 1 else [float(n) for n in w.initial_counts.tolist()]
            for w in self.wirings
        ]

    def drifts(self, wiring: Wiring, first_layer: int, step: int, lr: float) -> list[DriftAndNoise]:
        """ηα and √(2ηT) of this step: one drift for all connections, or one for each layer where layers differ.

        The very list of the last step if nothing in it has changed.
        """
        if not self.rates_are_one or wiring.rates is not None:
            return layer_drifts(wiring, self.l1[first_layer:], self.temperature[first_layer:], step, lr)
        rates = (self.l1[first_layer], self.temperature[first_layer])
        known = self._drifts.get(first_layer)
        if known is None or known[0] != (lr, rates) or self._rates_move:
            drift = DriftAndNoise(0, wiring.budget, *pull_and_push(*rates, step, lr))
            known = self._drifts[first_layer] = ((lr, rates), [drift])
        return known[1]

    def step(self) -> StepInfo:
        if not self.may_step():
            return self.no_step()
        require_finite(self.wirings, self.steps + 1)
        self.adapter.require_rates()
        self.steps += 1
        try:
            return self._step()
        except BaseException:  # an interrupt between the update and the rewiring, where those are not one call
            leave_valid(self.wirings)
            raise

    def _step(self) -> StepInfo:
        rewire = self.steps % self.rewire_every == 0
        self.adapter.step_torch(self.steps)
        active: list[int] = []
        rewired: list[int] = []
        first_layer = 0
        for number, wiring in enumerate(self.wirings):
            if wiring.theta.grad is None:  # not part of this loss: as torch does, leave it alone
                counts = StepCounts([0] * len(wiring.layers), [0] * len(wiring.layers), wiring.layer_active)
            else:
                group = self.adapter.group(wiring)
                drifts = self.drifts(wiring, first_layer, self.steps, self.adapter.lr(group))
                shares = self.shares[number]
                counts = deep_r_step(
                    wiring, self.adapter, number, group, drifts, self.steps, rewire=rewire, shares=shares
                )
            active += counts.active
            rewired += counts.born
            first_layer += len(wiring.layers)
        return StepInfo(self.steps, sum(active), self.budget, sum(rewired), self.shapes, active, rewired)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, **self.adapter.ages()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        born = state["born"]
        if len(born) != len(self.adapter.born):
            raise ValueError(f"state has ages of {len(born)} wirings, but the method keeps {len(self.adapter.born)}")
        for mine, theirs in zip(self.adapter.born, born, strict=True):
            if mine.shape != theirs.shape:
                raise ValueError(f"state has ages of {theirs.numel()} connections, but the wiring has {mine.numel()}")
            mine.copy_(theirs)
        self.steps = int(state["steps"])
        self.adapter.load_updates(state)
        self.shares = self._initial_shares()  # of the wirings that were loaded, which may have started otherwise
