"""Batches of sequences: every utterance once, padded, scaled by the training part, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wirebound_lab.data import DataError, SequenceDataset
from wirebound_lab.data.mfcc import with_differences
from wirebound_lab.data.sequences import NO_LABEL


def made(utterances: int = 60, voices: int = 12, **changes: object) -> SequenceDataset:
    random = np.random.RandomState(5)
    lengths = random.randint(1, 90, utterances)
    total = int(lengths.sum())
    frames = random.randint(-3000, 3000, (total, 4)).astype(np.int16)
    frames[:, 3] = 7  # a constant feature must not divide by zero
    parts = np.where(np.arange(utterances) % 4 == 3, "test", "train")
    arguments: dict[str, object] = {
        "name": "made",
        "frames": frames,
        "step": np.array([0.1, 0.5, 1.0, 1.0], dtype=np.float32),
        "labels": random.randint(-1, 6, total).astype(np.int16),
        "lengths": lengths.astype(np.int64),
        "parts": parts,
        "class_names": tuple("abcdef"),
        "source": "here",
        "speakers": np.array([f"s{i % voices}" for i in range(utterances)]),
    }
    return SequenceDataset(**{**arguments, **changes})  # type: ignore[arg-type]


def test_every_utterance_comes_once_with_its_own_frames() -> None:
    data = made()
    mean, deviation = data.scaling
    seen = []
    for x, lengths, y in data.batches(8, data.order("train", seed=3, epoch=2)):
        assert x.shape[:2] == y.shape
        assert (x.dtype, y.dtype, lengths.dtype) == (torch.float32, torch.int64, torch.int64)
        assert x.shape[1] == int(lengths.max())
        for row, length in enumerate(lengths.tolist()):
            assert not x[row, length:].any()
            assert (y[row, length:] == NO_LABEL).all()
            # Which utterance it is, is found by its labels and frames.
            found = [
                u
                for u in data.part("train")
                if data.lengths[u] == length
                and np.array_equal(data.labels[data.offsets[u] : data.offsets[u + 1]], y[row, :length].numpy())
            ]
            assert len(found) >= 1
            expected = [
                (with_differences((data.frames[data.offsets[u] : data.offsets[u + 1]] * data.step), np.array([length])) - mean)
                / deviation
                for u in found
            ]
            close = [u for u, e in zip(found, expected, strict=True) if np.allclose(e, x[row, :length].numpy(), atol=1e-4)]
            seen += close[:1]
    assert sorted(seen) == sorted(data.part("train").tolist())


def test_scaling_is_that_of_the_training_part() -> None:
    data = made()
    rows = torch.cat([x[i, :n] for x, lengths, _ in data.batches(5, data.part("train")) for i, n in enumerate(lengths)])
    varying = [i for i in range(12) if i % 4 != 3]
    assert rows.mean(0).tolist() == pytest.approx([0.0] * 12, abs=1e-4)
    assert rows.std(0, correction=0)[varying].tolist() == pytest.approx([1.0] * 9, abs=1e-4)
    assert torch.isfinite(rows).all()


def test_seed_and_epoch_decide_the_batches() -> None:
    data = made()

    def labels(seed: int, epoch: int) -> list[list[int]]:
        return [b.y.flatten().tolist() for b in data.batches(8, data.order("train", seed, epoch))]

    assert labels(1, 1) == labels(1, 1)
    assert labels(1, 1) != labels(1, 2)
    assert labels(1, 1) != labels(2, 1)


def test_buckets_save_padding() -> None:
    data = made(utterances=400)
    order = data.order("train", 0, 1)
    padded = sum(b.y.numel() for b in data.batches(10, order))
    plain = sum(10 * int(data.lengths[order[i : i + 10]].max()) for i in range(0, len(order), 10))
    held = int(data.lengths[order].sum())
    assert padded < 1.15 * held
    assert plain > 1.5 * held  # what it would be without


def test_validation_takes_whole_speakers_and_leaves_the_test_alone() -> None:
    data = made(utterances=400, voices=50)
    split = data.split_validation(0.1, seed=4)
    held_out = split.part("validation")
    assert len(held_out) == pytest.approx(30, abs=4)
    assert not set(split.speakers[held_out]) & set(split.speakers[split.part("train")])
    assert np.array_equal(split.part("test"), data.part("test"))
    assert np.array_equal(split.parts, data.split_validation(0.1, seed=4).parts)
    assert not np.array_equal(split.parts, data.split_validation(0.1, seed=5).parts)
    assert not np.array_equal(split.scaling[0], data.scaling[0])
    by_utterance = data.split_validation(0.1, seed=4, by_speaker=False)
    assert len(by_utterance.part("validation")) == 30
    assert len(by_utterance.part("train")) == 270


def test_a_data_set_without_speakers_splits_by_utterance() -> None:
    data = made(voices=1)
    with pytest.raises(DataError, match="must leave something to train on"):
        data.split_validation(0.05, seed=0)
    nobody = made(speakers=np.zeros(0, dtype="U1"))
    assert len(nobody.split_validation(0.2, seed=0).part("validation")) == 9


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"lengths": np.ones(60, dtype=np.int64)}, r"lengths \(least 1, in all 60\) must be at least 1 and add up to"),
        ({"labels": np.zeros(3, dtype=np.int16)}, "a label for each frame"),
        ({"class_names": ("a", "b")}, r"labels \(from -1 to 5\) must be below 2"),
        ({"parts": np.full(60, "test")}, "must have training utterances"),
    ],
)
def test_arrays_must_fit(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        made(**changes)


def test_arguments_are_checked() -> None:
    data = made()
    for call, rule in (
        (lambda: data.part("dev"), r"part \(='dev'\) must be one of train, validation, test"),
        (lambda: next(data.batches(0, data.part("train"))), r"batch_size \(=0\) must be at least 1"),
        (lambda: data.split_validation(1.0), r"share \(=1.0\) must be in \(0, 1\)"),
        (lambda: data.order("train", -1, 0), r"seed \(=-1\)"),
    ):
        with pytest.raises(DataError, match=rule):
            call()
    assert "train=45, validation=0, test=15" in repr(data)
