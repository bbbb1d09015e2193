"""Utterances of different lengths, with a class for every frame: what a recurrent network is trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .content import DataError
from .dataset import as_tensor
from .mfcc import with_differences

if TYPE_CHECKING:
    from torch import Tensor

TRAIN, VALIDATION, TEST = "train", "validation", "test"
PARTS = (TRAIN, VALIDATION, TEST)
NO_LABEL = -1  # of padding, and of frames that count neither in training nor in the error

_POOL = 32  # batches that are cut from one sorted pool: less padding in a larger one, less chance in who meets whom
_CHUNK = 20_000  # frames at a time when all are looked at

Index = NDArray[np.int64]


class Batch(NamedTuple):
    """x [B, T, features] float32, lengths [B] int64, y [B, T] int64; beyond its length x is 0 and y is NO_LABEL."""

    x: Tensor
    lengths: Tensor
    y: Tensor


@dataclass(frozen=True, eq=False)
class SequenceDataset:
    """Utterances end to end, as stored: features without differences, often as int16.

    An input has three times ``frames.shape[1]`` numbers: the stored ones times ``step``, their first and second
    differences, scaled by the mean and the deviation of the training part. They are made a batch at a time, because all
    of them take six times the memory of what is stored.
    """

    name: str
    frames: NDArray[Any]  # [N, F] features, int16 or float32; the value is frames · step
    step: NDArray[np.float32]  # [F]
    labels: NDArray[np.int16]  # [N] class of each frame, NO_LABEL where there is none
    lengths: Index  # [U] frames of each utterance, at least 1
    parts: NDArray[np.str_]  # [U] "train", "validation" or "test"
    class_names: tuple[str, ...]
    source: str  # where the data was found
    speakers: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype="U1"))  # [U]; empty if not known
    utterances: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype="U1"))  # [U] names

    def __post_init__(self) -> None:
        count, frames, total = len(self.lengths), len(self.frames), int(self.lengths.sum())
        if count == 0 or self.lengths.min() < 1 or total != frames:
            given = f"least {min(self.lengths.tolist(), default=0)}, in all {total}"
            raise DataError(f"{self.name}: lengths ({given}) must be at least 1 and add up to {frames} frames")
        if len(self.labels) != frames or len(self.parts) != count:
            raise DataError(f"{self.name}: there must be a label for each frame and a part for each utterance")
        if self.labels.min() < NO_LABEL or self.labels.max() >= len(self.class_names):
            span = f"from {self.labels.min()} to {self.labels.max()}"
            raise DataError(f"{self.name}: labels ({span}) must be below {self.classes}, the number of classes")
        if not (self.parts == TRAIN).any():
            raise DataError(f"{self.name}: must have training utterances")

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def features(self) -> int:
        """Numbers of a frame, with differences."""
        return 3 * int(self.frames.shape[1])

    @cached_property
    def offsets(self) -> Index:
        """Where each utterance starts in ``frames``, and at last where they end."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    def part(self, name: str) -> Index:
        """The utterances of a part, as indices."""
        if name not in PARTS:
            raise DataError(f"part (={name!r}) must be one of {', '.join(PARTS)}")
        return np.flatnonzero(self.parts == name)

    @cached_property
    def scaling(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and deviation of every input over the frames of the training part."""
        total, squares, count = np.zeros(self.features), np.zeros(self.features), 0
        train = self.part(TRAIN)
        chunks = np.cumsum(self.lengths[train]) // _CHUNK
        for number in np.unique(chunks):
            values = self._inputs(train[chunks == number]).astype(np.float64)
            total, squares, count = total + values.sum(0), squares + (values**2).sum(0), count + len(values)
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        deviation[deviation < 1e-6] = 1.0  # a constant input stays one
        return mean.astype(np.float32), deviation.astype(np.float32)

    def order(self, part: str, seed: int, epoch: int) -> Index:
        """The utterances of a part in the order of an epoch; the stream of NumPy's RandomState is frozen for good."""
        if not 0 <= seed < 2**32 or not 0 <= epoch < 2**32:
            raise DataError(f"seed (={seed}) and epoch (={epoch}) must be in [0, 2**32)")
        return np.random.RandomState([seed, epoch]).permutation(self.part(part))

    def batches(self, batch_size: int, order: Index) -> Iterator[Batch]:
        """Padded batches of the utterances in ``order``; each utterance comes once.

        Utterances of similar length come together, to save padding: stretches of ``order`` are sorted by length and
        cut into batches, which come in the order of their first utterances. So all of it follows from ``order``.
        """
        if batch_size < 1:
            raise DataError(f"batch_size (={batch_size}) must be at least 1")
        for start in range(0, len(order), _POOL * batch_size):
            pool = order[start : start + _POOL * batch_size]
            by_length = np.argsort(self.lengths[pool], kind="stable")
            cut = [by_length[at : at + batch_size] for at in range(0, len(pool), batch_size)]
            for chosen in sorted(cut, key=lambda places: int(places.min())):
                yield self.batch(pool[chosen])

    def batch(self, chosen: Index) -> Batch:
        """These utterances, padded at their ends."""
        mean, deviation = self.scaling
        lengths = self.lengths[chosen]
        valid = np.arange(lengths.max()) < lengths[:, None]
        x = np.zeros((*valid.shape, self.features), dtype=np.float32)
        y = np.full(valid.shape, NO_LABEL, dtype=np.int64)
        x[valid] = (self._inputs(chosen) - mean) / deviation
        y[valid] = self.labels[self._positions(chosen)]
        return Batch(as_tensor(x), as_tensor(lengths.copy()), as_tensor(y))

    def split_validation(self, share: float = 0.05, seed: int = 0, by_speaker: bool = True) -> SequenceDataset:
        """The same with ``share`` of the training utterances, drawn by ``seed``, as the validation part.

        Where speakers are known, ``by_speaker`` takes whole speakers, as many as come nearest to the share: a voice
        that was trained on says little about others. The scaling is then that of what is left to train on.
        """
        if not 0 < share < 1:
            raise DataError(f"share (={share}) must be in (0, 1)")
        if not 0 <= seed < 2**32:
            raise DataError(f"seed (={seed}) must be in [0, 2**32)")
        random = np.random.RandomState(seed)
        train = self.part(TRAIN)
        wanted = max(1, round(share * len(train)))
        if by_speaker and len(self.speakers):
            names, counts = np.unique(self.speakers[train], return_counts=True)
            drawn = random.permutation(len(names))
            sizes = np.cumsum(counts[drawn])
            taken = int(np.argmin(np.abs(sizes - wanted))) + 1
            held_out = train[np.isin(self.speakers[train], names[drawn[:taken]])]
        else:
            held_out = random.permutation(train)[:wanted]
        if len(held_out) == len(train):
            raise DataError(f"{self.name}: a validation part (share={share}) must leave something to train on")
        parts = self.parts.astype("U10")
        parts[held_out] = VALIDATION
        return replace(self, parts=parts)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={len(self.part(name))}" for name in PARTS)
        sizes = f"frames={len(self.frames)}, features={self.features}, classes={self.classes}"
        return f"SequenceDataset({self.name!r}, {counts}, {sizes}, source={self.source!r})"

    def _positions(self, chosen: Index) -> Index:
        """The frames of these utterances, end to end."""
        lengths = self.lengths[chosen]
        shift = self.offsets[chosen] - (np.cumsum(lengths) - lengths)
        return np.arange(int(lengths.sum())) + np.repeat(shift, lengths)

    def _inputs(self, chosen: Index) -> NDArray[np.float32]:
        static = self.frames[self._positions(chosen)] * self.step
        return with_differences(static.astype(np.float32, copy=False), self.lengths[chosen])
