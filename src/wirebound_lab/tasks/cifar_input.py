"""CIFAR-10 as the TensorFlow 1.3 tutorial feeds it: 24×24 pieces, distorted for training, each image standardised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from wirebound.engine.modules import data_order
from wirebound_lab.data import Dataset

SIDE = 24
_FULL = 32
_CONTRAST = (0.2, 1.8)
_EPOCHS = 1 << 20  # more than any run has


@dataclass(frozen=True)
class Batch:
    """x [B, 3, 24, 24] float32, standardised; y [B]."""

    x: Tensor
    y: Tensor


def training_batches(data: Dataset, size: int, seed: int, epoch: int, count: int | None = None) -> Iterator[Batch]:
    """The training images of an epoch (the first ``count`` of its order), each at a random place, side and contrast.

    The tutorial also changes the brightness, which the standardisation undoes exactly; so it is left away here.
    """
    generator = torch.Generator().manual_seed(seed * _EPOCHS + epoch)
    for chosen in data_order(len(data.train_y), seed, epoch)[:count].split(size):
        top, left = torch.randint(_FULL - SIDE + 1, (2, len(chosen)), generator=generator)
        flipped = torch.rand(len(chosen), generator=generator) < 0.5
        contrast = torch.empty(len(chosen), 1, 1, 1).uniform_(*_CONTRAST, generator=generator)
        x = _pieces(data.train_x, chosen, top, left, flipped)
        mean = x.mean((2, 3), keepdim=True)
        yield Batch(standardise((x - mean) * contrast + mean), data.train_y[chosen])


def evaluation_batches(data: Dataset, size: int) -> Iterator[Batch]:
    """The middle of each test image."""
    for chosen in torch.arange(len(data.test_y)).split(size):
        middle = torch.full_like(chosen, (_FULL - SIDE) // 2)
        x = _pieces(data.test_x, chosen, middle, middle, torch.zeros_like(chosen, dtype=torch.bool))
        yield Batch(standardise(x), data.test_y[chosen])


def standardise(x: Tensor) -> Tensor:
    """Each image with mean 0 and deviation 1; the deviation counts as 1/√n at least, for images of one colour."""
    flat = x.flatten(1)
    deviation = flat.std(1, correction=0).clamp_(min=flat.shape[1] ** -0.5)
    return ((flat - flat.mean(1, keepdim=True)) / deviation.unsqueeze(1)).view_as(x)


def _pieces(images: Tensor, chosen: Tensor, top: Tensor, left: Tensor, flipped: Tensor) -> Tensor:
    """24×24 pieces of the chosen images as float32 in [0, 1]."""
    steps = torch.arange(SIDE)
    rows = top[:, None] + steps
    columns = left[:, None] + torch.where(flipped[:, None], SIDE - 1 - steps, steps)
    channels = torch.arange(3)[None, :, None, None]
    taken = images[chosen[:, None, None, None], channels, rows[:, None, :, None], columns[:, None, None, :]]
    return taken.to(torch.float32).div_(255)
