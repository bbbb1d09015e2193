"""Made-up images that train like MNIST: as many lit pixels, and as many connections replaced in a step.

What a step costs depends on how much is rewired in it. On labels that cannot be learned, ℓ1 pulls every θ to 0 and
most connections are replaced in every step, which no real training does; so the classes here can be learned.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_LIT = 0.19  # share of pixels above 0, as in MNIST
_ALIKE = 0.5  # how much images of a class have in common; at this value as many are rewired as on MNIST


@dataclass(frozen=True)
class Examples:
    """Images and labels."""

    x: Tensor
    y: Tensor

    @staticmethod
    def make(inputs: int, classes: int, count: int, seed: int = 0) -> Examples:
        generator = torch.Generator().manual_seed(seed)
        prototypes = torch.rand(classes, inputs, generator=generator)
        y = torch.randint(classes, (count,), generator=generator)
        scores = _ALIKE * prototypes[y] + (1 - _ALIKE) * torch.rand(count, inputs, generator=generator)
        dark = inputs - max(1, round(_LIT * inputs))
        lit = scores > scores.kthvalue(dark, dim=1, keepdim=True).values
        brightness = 0.3 + 0.7 * torch.rand(count, inputs, generator=generator)
        return Examples(torch.where(lit, brightness, 0.0), y)

    def batches(self, size: int) -> list[tuple[Tensor, Tensor]]:
        return list(zip(torch.split(self.x, size), torch.split(self.y, size), strict=True))
