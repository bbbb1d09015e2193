"""The file of frame-labelled speech that ``speech`` and ``spoken`` use: one .npz, no audio.

| array | type, shape | meaning |
| --- | --- | --- |
| mfcc | int16 [N, 13] | coefficients 1-12, log energy; all utterances end to end; value = mfcc · step |
| step | float32 [13] | > 0 |
| labels | uint8 [N] | class of each frame, index into classes |
| lengths | int32 [U] | frames of each utterance |
| classes | text [C] | names of the classes |
| is_test | bool [U] | whether the utterance is of the test part |
| utt, speaker | text [U] | names |
| age, gender | uint8, text [U] | of the speaker; optional |
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DataError
from .mfcc import STATIC
from .npz import parse_npz
from .sequences import TEST, TRAIN, SequenceDataset

_QUANTA = 50.0  # steps of quantisation in a standard deviation
_MOST_CLASSES = 255
_TYPES = {
    "mfcc": "int16", "step": "float32", "labels": "uint8", "lengths": "int32", "classes": "text",
    "is_test": "bool", "utt": "text", "speaker": "text", "age": "uint8", "gender": "text",
}  # fmt: skip
_OPTIONAL = {"age", "gender"}


def parse_phones(content: bytes, name: str, where: str, found: str, limit: int) -> SequenceDataset:
    """The data set in a file's content; ``where`` names the file in errors, ``found`` becomes its source."""
    arrays = parse_npz(content, where, limit)
    _check(arrays, where)
    parts = np.where(arrays["is_test"], TEST, TRAIN)
    return SequenceDataset(
        name=name,
        frames=arrays["mfcc"],
        step=arrays["step"],
        labels=arrays["labels"].astype(np.int16),
        lengths=arrays["lengths"].astype(np.int64),
        parts=parts,
        class_names=tuple(arrays["classes"].tolist()),
        source=found,
        speakers=arrays["speaker"],
        utterances=arrays["utt"],
    )


def pack_phones(
    features: NDArray[np.float32],
    labels: NDArray[Any],
    lengths: NDArray[Any],
    classes: tuple[str, ...],
    is_test: NDArray[Any],
    utterances: list[str],
    speakers: list[str],
) -> bytes:
    """The content of such a file; the same arguments give the same bytes."""
    deviation = features.std(0, dtype=np.float64)
    # Far values must fit into 16 bits, whatever the deviation.
    step = np.maximum(deviation / _QUANTA, np.abs(features).max(0) / 32_000).astype(np.float32)
    step[step <= 0] = 1.0
    raw = io.BytesIO()
    np.savez_compressed(
        raw,
        mfcc=np.rint(features / step).astype(np.int16),
        step=step,
        labels=np.asarray(labels, dtype=np.uint8),
        lengths=np.asarray(lengths, dtype=np.int32),
        classes=np.array(classes),
        is_test=np.asarray(is_test, dtype=bool),
        utt=np.array(utterances),
        speaker=np.array(speakers),
    )
    return raw.getvalue()


def _check(arrays: dict[str, NDArray[Any]], where: str) -> None:
    lacking = [name for name in _TYPES if name not in arrays and name not in _OPTIONAL]
    unknown = [name for name in arrays if name not in _TYPES]
    if lacking or unknown:
        raise DataError(f"{where}: arrays must be {', '.join(_TYPES)}; lacks {lacking}, holds {unknown[:5]} as well")
    for name, array in arrays.items():
        kind = "text" if array.dtype.kind == "U" else array.dtype.name
        if kind != _TYPES[name]:
            raise DataError(f"{where}: type of {name} (={kind}) must be {_TYPES[name]}")
    frames, count, classes = len(arrays["labels"]), len(arrays["lengths"]), len(arrays["classes"])
    shapes = {"mfcc": (frames, STATIC), "step": (STATIC,), "labels": (frames,), "classes": (classes,)}
    for name, array in arrays.items():
        shape = shapes.get(name, (count,))
        if array.shape != shape:
            raise DataError(f"{where}: shape of {name} (={array.shape}) must be {shape}")
    if frames < 1 or count < 1 or not 1 <= classes <= _MOST_CLASSES:
        raise DataError(f"{where}: frames (={frames}), utterances (={count}) and classes (={classes}) must be at least 1")
    step, lengths, labels, names = arrays["step"], arrays["lengths"], arrays["labels"], arrays["classes"].tolist()
    if not (np.isfinite(step).all() and (step > 0).all() and (step < 1e6).all()):
        raise DataError(f"{where}: step (={step.tolist()}) must be finite numbers in (0, 1e6)")
    if lengths.min() < 1:
        raise DataError(f"{where}: lengths (one is {lengths.min()}) must be at least 1")
    if int(lengths.sum(dtype=np.int64)) != frames:
        raise DataError(f"{where}: lengths (in all {lengths.sum(dtype=np.int64)}) must add up to {frames} frames")
    if labels.max() >= classes:
        raise DataError(f"{where}: labels (one is {labels.max()}) must be below {classes}, the number of classes")
    if len(set(names)) != classes or "" in names:
        raise DataError(f"{where}: classes must have different names")
    if arrays["is_test"].dtype != np.bool_ or not (~arrays["is_test"]).any():
        raise DataError(f"{where}: is_test must leave utterances to train on")
