"""Small data in the form of the real: images that are noise around colours, speech that is noise around points."""

from __future__ import annotations

import numpy as np
import torch

from wirebound_lab.data import Dataset, SequenceDataset


def stripes_data() -> Dataset:
    """Images of ten colours with noise, in the form of CIFAR-10: quickly learned."""
    generator = torch.Generator().manual_seed(5)
    colours = torch.randint(40, 216, (10, 3, 1, 1), generator=generator)

    def images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(count) % 10
        noise = torch.randint(-20, 21, (count, 3, 32, 32), generator=generator)
        x = colours[y] + noise
        x[..., :16, :] += 20 * (y % 2)[:, None, None, None]
        return x.clamp(0, 255).to(torch.uint8), y

    train, test = images(160), images(60)
    return Dataset("cifar10", *train, *test, classes=10, shape=(3, 32, 32), source="made here")


def corpus_data() -> SequenceDataset:
    """Noise around one point for each class, in a random walk of classes."""
    random = np.random.RandomState(1)
    lengths = random.randint(10, 40, 60).astype(np.int64)
    total = int(lengths.sum())
    labels = (np.cumsum(random.rand(total) < 0.2) % 5).astype(np.int16)
    points = random.normal(0, 2, (5, 13))
    frames = (points[labels] + random.normal(0, 1, (total, 13))).astype(np.float32)
    labels[random.rand(total) < 0.05] = -1
    return SequenceDataset(
        name="speech",
        frames=frames,
        step=np.ones(13, dtype=np.float32),
        labels=labels,
        lengths=lengths,
        parts=np.where(np.arange(60) % 5 == 0, "test", "train"),
        class_names=tuple("abcde"),
        source="made",
        speakers=np.array([f"s{i // 3}" for i in range(60)]),
    )
