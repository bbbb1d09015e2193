"""Rates that may be a number, one number for each layer, or a schedule.

A schedule is any function of (step, lr) that returns a number: ``step`` counts from 1, ``lr`` is the optimiser's
current learning rate η, so that torch's own lr schedulers carry ℓ1 and temperature along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Schedule: TypeAlias = Callable[[int, float], float]
Scalar: TypeAlias = "float | Schedule"
Noise: TypeAlias = "float | Sequence[float] | Mapping[str, float]"
Rate: TypeAlias = "Scalar | Sequence[Scalar] | Mapping[str, Scalar]"


class _OfLr:
    """A schedule that follows the learning rate alone, so that it stands still while that does."""


@dataclass(frozen=True)
class _NoiseAmplitude(_OfLr):
    g: float

    def __call__(self, step: int, lr: float) -> float:
        return lr * self.g * self.g / 2


@dataclass(frozen=True)
class _ProportionalToLr(_OfLr):
    value: float
    lr: float

    def __call__(self, step: int, lr: float) -> float:
        return self.value * lr / self.lr


def check_lr(lr: float) -> None:
    """An optimiser takes any learning rate from a scheduler, but noise has the variance 2ηT."""
    if not (math.isfinite(lr) and lr >= 0):
        raise ValueError(f"lr (={lr}) must be a finite number >= 0")


def changes_with_step(rate: Scalar) -> bool:
    """Whether a rate may change although the learning rate does not."""
    return callable(rate) and not isinstance(rate, _OfLr)


def noise_amplitude(g: float) -> Schedule:
    """The temperature at which the noise of a step is η g ν, as in the authors' code: T = η g² / 2.

    With a decaying η this anneals T in proportion to η, as the paper does for CIFAR-10 (there g = α / 3).
    """
    if not (math.isfinite(g) and g >= 0):
        raise ValueError(f"noise amplitude g (={g}) must be a finite number >= 0")
    return _NoiseAmplitude(g)


def proportional_to_lr(value: float, lr: float) -> Schedule:
    """``value`` while the learning rate is ``lr``, then in proportion to it."""
    if not lr > 0:
        raise ValueError(f"lr (={lr}) must be > 0")
    return _ProportionalToLr(value, lr)


def linear(start: float, end: float, steps: int) -> Schedule:
    """From ``start`` to ``end`` in a straight line over ``steps`` steps, then constant."""
    _check_steps("steps", steps)
    return lambda step, lr: start + (end - start) * min(step / steps, 1.0)


def exponential(start: float, factor: float, every: int) -> Schedule:
    """``start``, multiplied by ``factor`` once in ``every`` steps, smoothly."""
    _check_steps("every", every)
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"factor (={factor}) must be a finite number > 0")
    return lambda step, lr: start * math.exp(step / every * math.log(factor))


def cosine(start: float, end: float, steps: int) -> Schedule:
    """From ``start`` to ``end`` along half a cosine over ``steps`` steps, then constant."""
    _check_steps("steps", steps)
    return lambda step, lr: end + (start - end) * (1 + math.cos(math.pi * min(step / steps, 1.0))) / 2


def _check_steps(name: str, steps: float) -> None:
    if not steps > 0:
        raise ValueError(f"{name} (={steps}) must be > 0")


def per_layer(name: str, rate: Rate, layers: Sequence[str]) -> list[Scalar]:
    """The rate of each layer: one for all, a list in the order of the layers, or a mapping from layer name.

    Numbers are checked here, once; a schedule is checked when it is asked.
    """
    if isinstance(rate, Mapping):
        unknown = sorted(set(rate) - set(layers))
        missing = [layer for layer in layers if layer not in rate]
        if unknown or missing:
            raise ValueError(
                f"{name} must name every sparse layer: missing {missing}, unknown {unknown}, layers are {list(layers)}"
            )
        rates = [rate[layer] for layer in layers]
    elif isinstance(rate, Sequence):
        if len(rate) != len(layers):
            raise ValueError(f"{name} has {len(rate)} values for {len(layers)} sparse layers ({list(layers)})")
        rates = list(rate)
    else:
        rates = [rate] * len(layers)
    for value in rates:
        if not callable(value):
            check_rate(name, value)
    return rates


def temperatures(noise: Noise, temperature: Rate | None, layers: Sequence[str]) -> list[Scalar]:
    """The temperature of each layer: as given, else that of noise of amplitude η g."""
    if temperature is not None:
        return per_layer("temperature", temperature, layers)
    return [noise_amplitude(float(g)) for g in per_layer("noise", noise, layers) if not callable(g)]


def check_rate(name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} (={value}) must be a finite number >= 0")
    return value


def at(name: str, rate: Scalar, step: int, lr: float) -> float:
    """The value of a rate in this step."""
    return check_rate(name, float(rate(step, lr))) if callable(rate) else rate
