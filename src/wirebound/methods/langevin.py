"""The Langevin step of DEEP R: θ is pulled by ηα and pushed by noise √(2ηT), with signs that are bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from torch import nn, optim

from wirebound import schedule
from wirebound.methods.method import WiringMethod
from wirebound.ops.rule import DriftAndNoise
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.schedule import Noise, Rate, Scalar
from wirebound.wiring import Wiring


def pull_and_push(l1: Scalar, temperature: Scalar, step: int, lr: float) -> tuple[float, float]:
    """ηα and √(2ηT) of this step."""
    schedule.check_lr(lr)
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
    own = [
        (*pull_and_push(alpha, heat, step, lr * factor), factor, decay, frozen)
        for factor, decay, frozen, alpha, heat in each
    ]
    if all(values == own[0] for values in own):
        return [DriftAndNoise(0, wiring.budget, *own[0])]
    return [DriftAndNoise(a, b, *values) for (a, b), values in zip(itertools.pairwise(wiring.bounds), own, strict=True)]


class LangevinMethod(WiringMethod):
    """A method on wirings with bound signs, whose θ drift by ``l1`` and ``temperature``, each a list over the layers."""

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
        first = self.first_layer(number)
        if not self._one_rate or wiring.rates is not None:
            return layer_drifts(wiring, self.l1[first:], self.temperature[first:], step, lr)
        key, known = (lr, self.l1[first], self.temperature[first]), self._drifts.get(number)
        if known is None or known[0] != key or self._rates_move:
            drift = DriftAndNoise(0, wiring.budget, *pull_and_push(self.l1[first], self.temperature[first], step, lr))
            known = self._drifts[number] = (key, [drift])
        return known[1]
