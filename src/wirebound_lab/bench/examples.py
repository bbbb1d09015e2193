"""Made-up images that train like MNIST: as many lit pixels, and as many connections replaced in a step.

What a step costs depends on how much is rewired in it. On labels that cannot be learned, ℓ1 pulls every θ to 0 and
most connections are replaced in every step, which no real training does; so the classes here can be learned.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

SCALE = 1 / 255  # of a byte
_LIT = 0.19  # share of pixels above 0, as in MNIST
_ALIKE = 0.5  # how much images of a class have in common; at this value as many are rewired as on MNIST


@dataclass(frozen=True)
class Examples:
    """Images as bytes, which is how MNIST comes and how the fused path takes it, the same as numbers, and labels."""

    pixels: Tensor
    y: Tensor

    @functools.cached_property
    def x(self) -> Tensor:
        return self.pixels * SCALE

    @staticmethod
    def make(inputs: int, classes: int, count: int, seed: int = 0) -> Examples:
        generator = torch.Generator().manual_seed(seed)
        prototypes = torch.rand(classes, inputs, generator=generator)
        y = torch.randint(classes, (count,), generator=generator)
        scores = _ALIKE * prototypes[y] + (1 - _ALIKE) * torch.rand(count, inputs, generator=generator)
        dark = inputs - max(1, round(_LIT * inputs))
        lit = scores > scores.kthvalue(dark, dim=1, keepdim=True).values
        brightness = 0.3 + 0.7 * torch.rand(count, inputs, generator=generator)
        return Examples((255 * torch.where(lit, brightness, 0.0)).round().to(torch.uint8), y)

    def batches(self, size: int) -> list[tuple[Tensor, Tensor]]:
        return list(zip(torch.split(self.x, size), torch.split(self.y, size), strict=True))
