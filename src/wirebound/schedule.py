"""Rates that may be a number, one number for each layer, or a schedule.

A schedule is any function of (step, lr) that returns a number: ``step`` counts from 1, ``lr`` is the optimiser's
current learning rate η, so that torch's own lr schedulers carry ℓ1 and temperature along.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

Schedule: TypeAlias = Callable[[int, float], float]
Scalar: TypeAlias = float | Schedule
Noise: TypeAlias = float | Sequence[float] | Mapping[str, float]
Rate: TypeAlias = Scalar | Sequence[Scalar] | Mapping[str, Scalar]


@dataclass(frozen=True)
class _OfLr:
    """η a b / c: it follows the learning rate alone, so that it stands still while that does."""

    a: float
    b: float
    c: float
    follows_lr = True

    def __call__(self, step: int, lr: float) -> float:
        return lr * self.a * self.b / self.c


def changes_with_step(rate: Scalar) -> bool:
    """Whether a rate may change although the learning rate does not."""
    return callable(rate) and not getattr(rate, "follows_lr", False)


def noise_amplitude(g: float) -> Schedule:
    """The temperature at which the noise of a step is η g ν, as in the authors' code: T = η g² / 2.

    With a decaying η this anneals T in proportion to η, as the paper does for CIFAR-10 (there g = α / 3).
    """
    check_rate("noise amplitude g", g)
    return _OfLr(g, g, 2)


def proportional_to_lr(value: float, lr: float) -> Schedule:
    """``value`` while the learning rate is ``lr``, then in proportion to it."""
    _check_positive("lr", lr)
    return _OfLr(value, 1.0, lr)


def linear(start: float, end: float, steps: int) -> Schedule:
    """From ``start`` to ``end`` in a straight line over ``steps`` steps, then constant."""
    _check_positive("steps", steps)
    return lambda step, lr: start + (end - start) * min(step / steps, 1.0)


def exponential(start: float, factor: float, every: int) -> Schedule:
    """``start``, multiplied by ``factor`` once in ``every`` steps, smoothly."""
    _check_positive("every", every)
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"factor (={factor}) must be a finite number > 0")
    return lambda step, lr: start * math.exp(step / every * math.log(factor))


def cosine(start: float, end: float, steps: int) -> Schedule:
    """From ``start`` to ``end`` along half a cosine over ``steps`` steps, then constant."""
    _check_positive("steps", steps)
    return lambda step, lr: end + (start - end) * (1 + math.cos(math.pi * min(step / steps, 1.0))) / 2


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} (={value}) must be > 0")


def per_layer(name: str, rate: Rate, layers: Sequence[str]) -> list[Scalar]:
    """The rate of each layer: one for all, a list in the order of the layers, or a mapping from layer name.

    Numbers are checked here, once; a schedule is checked when it is asked.
    """
    if isinstance(rate, str):
        raise ValueError(f"{name} (={rate!r}) must be a number, numbers or a schedule here")
    if isinstance(rate, Mapping):
        unknown, missing = sorted(set(rate) - set(layers)), [layer for layer in layers if layer not in rate]
        if unknown or missing:
            found = f"missing {missing}, unknown {unknown}, layers are {list(layers)}"
            raise ValueError(f"{name} must name every sparse layer: {found}")
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


def over(name: str, rate: Scalar, first_step: int, lrs: Tensor) -> Tensor | float:
    """The values of a rate in steps with these learning rates, the first of which is ``first_step``."""
    if not callable(rate):
        return rate
    if changes_with_step(rate):
        return torch.tensor([at(name, rate, first_step + i, lr) for i, lr in enumerate(lrs.tolist())], dtype=lrs.dtype)
    values: Any = rate(first_step, lrs)  # type: ignore[arg-type]  # of the learning rate alone: all at once
    for value in (values.min(), values.max()) if isinstance(values, Tensor) else (values,):
        check_rate(name, float(value))
    return values


def at(name: str, rate: Scalar, step: int, lr: float) -> float:
    """The value of a rate in this step."""
    return check_rate(name, float(rate(step, lr))) if callable(rate) else rate
