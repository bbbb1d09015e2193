"""Small data in the place of the real: speech that is noise around points, images that are noise around colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from wirebound_lab.data import Dataset, SequenceDataset
from wirebound_lab.tasks import cifar, phonemes, task_run


@pytest.fixture
def stripes(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Images of ten colours with noise, in the place and the form of CIFAR-10: quickly learned."""
    generator = torch.Generator().manual_seed(5)
    colours = torch.randint(40, 216, (10, 3, 1, 1), generator=generator)

    def images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(count) % 10
        noise = torch.randint(-20, 21, (count, 3, 32, 32), generator=generator)
        x = colours[y] + noise
        x[..., :16, :] += 20 * (y % 2)[:, None, None, None]
        return x.clamp(0, 255).to(torch.uint8), y

    train, test = images(160), images(60)
    data = Dataset("cifar10", *train, *test, classes=10, shape=(3, 32, 32), source="made here")
    monkeypatch.setattr(cifar, "load", lambda name, path: data)
    return data


@pytest.fixture
def loaded(corpus: SequenceDataset, monkeypatch: pytest.MonkeyPatch) -> SequenceDataset:
    """The small corpus in the place of the real one."""
    monkeypatch.setattr(phonemes, "load_sequences", lambda name, path, partial: corpus)
    return corpus


@pytest.fixture
def corpus() -> SequenceDataset:
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


@pytest.fixture
def cut_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """While ``cut_after(n)`` is open, the loop of the tasks is interrupted after n steps, as by Ctrl-C pressed twice."""

    @contextmanager
    def cut(steps: int) -> Iterator[None]:
        real, left = task_run._step, iter(range(steps))

        def failing(*given: Any) -> Any:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return real(*given)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(task_run, "_step", failing)
            yield

    return cut
