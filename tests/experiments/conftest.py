"""A small corpus in the place of the real one: noise around one point for each class, in a random walk of classes."""

from __future__ import annotations

import numpy as np
import pytest

from wirebound.data import SequenceDataset


@pytest.fixture
def corpus() -> SequenceDataset:
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
