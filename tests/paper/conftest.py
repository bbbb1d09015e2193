"""Small data in the place of the real: speech that is noise around points, images that are noise around colours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from wirebound.engine.modules import ModuleEngine
from wirebound_lab.data import Dataset, SequenceDataset
from wirebound_lab.tasks import cifar, phonemes

sys.path.append(str(Path(__file__).resolve().parent))


@pytest.fixture
def stripes(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Images of ten colours with noise, in the place and the form of CIFAR-10: quickly learned."""
    from small_data import stripes_data

    data = stripes_data()
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
    from small_data import corpus_data

    return corpus_data()


class Killed(BaseException):
    """Ends a run without giving it a chance to write anything."""


@pytest.fixture
def cut_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """While ``cut_after(n)`` is open, training is cut off after n steps, as by kill: nothing is written then."""

    @contextmanager
    def cut(steps: int) -> Iterator[None]:
        real, left = ModuleEngine._step, iter(range(steps))

        def failing(*given: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return real(*given)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(ModuleEngine, "_step", failing)
            yield

    return cut
