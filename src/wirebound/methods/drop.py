"""Drop rules: which connections go. Each picks at most ``most`` of a stock of connections.
A rule of one's own is a function of (stock, most) that returns sorted indices into the stock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from wirebound import ops
from wirebound.methods.when import Curve
from wirebound.ops import philox
from wirebound.ops.device import fixed

_LEAST = 1e-300  # |w| that a logarithm is taken of


@dataclass(frozen=True)
class Stock:
    """The connections among which a rule picks: those of a layer, or of a whole wiring, in their sorted order."""

    weights: Tensor
    gradient: Tensor  # ∂E/∂w of the step that was just taken
    signs: Tensor | None  # ±1: what they were born with; only where the rule asks for it by ``keeps_signs = True``
    seed: int  # for rules that draw: seed, stream and step name the random numbers
    stream: int
    step: int


DropRule: TypeAlias = Callable[[Stock, int], Tensor]


def smallest(values: Tensor, count: int) -> Tensor:
    """Sorted indices of the ``count`` smallest values; among equal ones the first come first."""
    if count == 0:
        return torch.empty(0, dtype=torch.int64, device=values.device)
    if ops.whole_wirings(values):
        return fixed.smallest(values, count)
    bound = values.kthvalue(count).values
    below, equal = torch.nonzero(values < bound).view(-1), torch.nonzero(values == bound).view(-1)
    return torch.cat([below, equal[: count - below.numel()]]).sort().values


@dataclass(frozen=True)
class Magnitude:
    """The connections with the smallest |w|, as RigL drops."""

    def __call__(self, stock: Stock, most: int) -> Tensor:
        return smallest(stock.weights.abs(), most)


@dataclass(frozen=True)
class SoftMagnitude:
    """Drawn connections, small ones more often: one after another in proportion to |w|^(−1/temperature).

    At temperature 0 it is ``Magnitude``, at infinity ``Random``. Soft removal as in CHTs (Zhang et al. 2025), which also
    weighs a connection by the others of its neurons.

    Args:
        temperature: a number >= 0, or a function of the step (``wb.when.linear`` and the like).
    """

    temperature: float | Curve = 1.0

    def __post_init__(self) -> None:
        if not callable(self.temperature):
            self._checked(self.temperature)

    @staticmethod
    def _checked(temperature: float) -> float:
        if not temperature >= 0:
            raise ValueError(f"temperature (={temperature}) must be a number >= 0")
        return temperature

    def __call__(self, stock: Stock, most: int) -> Tensor:
        size, temperature = stock.weights.abs(), self.temperature
        temperature = self._checked(temperature(stock.step)) if callable(temperature) else temperature
        if temperature == 0:
            return smallest(size, most)
        # Weights of 0 go first, in any order among themselves.
        logs = size.to(torch.float64).clamp(min=_LEAST).log()
        return smallest(logs / temperature - philox.gumbels(stock.seed, stock.stream, stock.step, logs.numel(), logs.device), most)


@dataclass(frozen=True)
class SmallestOfEachSign:
    """The smallest positive and the largest negative weights, as many of each as there are more of them, as SET drops."""

    def __call__(self, stock: Stock, most: int) -> Tensor:
        if ops.whole_wirings(stock.weights):
            below = stock.weights < 0
            share = (most * below.sum().to(torch.float64) / max(1, stock.weights.numel())).round().to(torch.int64)
            return fixed.smallest_of_each(stock.weights.abs(), below, share, most)
        negative = torch.nonzero(stock.weights < 0).view(-1)
        positive = torch.nonzero(stock.weights >= 0).view(-1)
        # Rounding can never ask for more than there are: most · n / total <= n, and the rest fits likewise.
        of_negative = round(most * negative.numel() / max(1, stock.weights.numel()))
        size = stock.weights.abs()
        parts = ((negative, of_negative), (positive, most - of_negative))
        return torch.cat([part[smallest(size[part], count)] for part, count in parts]).sort().values


@dataclass(frozen=True)
class Sensitivity:
    """The connections with the smallest |w · ∂E/∂w|: to first order, those whose loss costs least."""

    def __call__(self, stock: Stock, most: int) -> Tensor:
        return smallest((stock.weights * stock.gradient).abs(), most)


@dataclass(frozen=True)
class Random:
    """Any connections, all equally likely."""

    def __call__(self, stock: Stock, most: int) -> Tensor:
        device = stock.weights.device
        return ops.backend_on(device).sample_sorted(stock.weights.numel(), most, stock.seed, stock.stream, stock.step, device)


@dataclass(frozen=True)
class Below:
    """The connections with |w| < ``threshold``; if they are more than allowed, the smallest of them."""

    threshold: float

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise ValueError(f"threshold (={self.threshold}) must be >= 0")

    def __call__(self, stock: Stock, most: int) -> Tensor:
        size = stock.weights.abs()
        return smallest(size, min(most, int((size < self.threshold).sum())))


@dataclass(frozen=True)
class SignFlips:
    """The connections whose weight has crossed zero since they were born; if too many, the furthest; as DEEP R."""

    keeps_signs = True

    def __call__(self, stock: Stock, most: int) -> Tensor:
        assert stock.signs is not None
        bound = stock.weights * stock.signs  # θ of DEEP R: dead where negative
        return smallest(bound, min(most, int((bound < 0).sum())))
