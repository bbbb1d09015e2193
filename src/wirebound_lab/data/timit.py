"""TIMIT (LDC93S1): read English with hand-made phone labels, as its licence holders have it on disk.

Layouts, in upper or lower case: that of the Linguistic Data Consortium, ``TRAIN|TEST/DR1/FCJF0/SX37.WAV`` and ``.PHN``;
and the flat one of the sample that NLTK passes on, ``dr1-fvmh0/sx206.wav`` and ``.phn``, which is only a part.

The training part is all of TRAIN without the SA sentences (462 speakers, 3,696 utterances), the test part is the core
test (24 speakers, 192 utterances). The sample has no parts of its own: speakers of regions 4 and 8 are its test part.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import sources
from .audio import read_audio
from .errors import DataError
from .kind import Route
from .mfcc import STATIC, frame_centres, mfcc
from .sequences import NO_LABEL, TEST, TRAIN, SequenceDataset
from .sources import Source
from .timit_phones import CLASSES, CORE_TEST, SENTENCES, TRAIN_SPEAKERS, class_of

_SENTENCE = re.compile(r"(s[aix]\d{1,4})\.(wav|phn)", re.IGNORECASE)
_REGION = re.compile(r"dr[1-8]", re.IGNORECASE)
_FLAT = re.compile(r"(dr[1-8])-([fm][a-z]{3}\d)", re.IGNORECASE)
_FLAT_TEST = ("dr4", "dr8")
_MOST_LABELS = 100_000  # bytes of a .PHN file


@dataclass(frozen=True)
class Utterance:
    """A sentence of the corpus: who speaks, in which part it is, its two files."""

    part: str
    speaker: str
    sentence: str
    audio: Path
    labels: Path

    @property
    def name(self) -> str:
        return f"{self.speaker}_{self.sentence}"


@dataclass(frozen=True)
class Timit:
    """The data set; ``partial`` accepts a corpus that lacks speakers or sentences."""

    partial: bool = False
    SUBFOLDERS: tuple[str, ...] = ("timit", "TIMIT", "timit/TIMIT", "timit/timit", "timit/data")

    def source(self) -> Source:
        return sources.TIMIT

    def missing(self, folder: Path) -> list[str]:
        held = _held(folder)
        if any(_FLAT.fullmatch(name) for name in held):
            return []
        # Many data sets have folders of these names; only TIMIT's hold dialect regions.
        return [
            name
            for name in ("TRAIN", "TEST")
            if not any(_REGION.fullmatch(region) for region in _held(folder / held.get(name.lower(), name)))
        ]

    def read(self, folder: Path, found: str) -> SequenceDataset:
        utterances = sorted(_find(folder), key=lambda u: (u.part != TRAIN, u.speaker, u.sentence))
        if not self.partial:
            _check_complete(utterances, folder)
        if not any(u.part == TRAIN for u in utterances):
            raise DataError(f"{folder}: must hold training utterances of TIMIT, holds none")
        features, labels = [], []
        for utterance in utterances:
            frames = mfcc(read_audio(utterance.audio))
            if len(frames) == 0:
                raise DataError(f"{utterance.audio}: must be longer than half a frame")
            features.append(frames)
            labels.append(read_labels(utterance.labels, len(frames)))
        return SequenceDataset(
            name="timit",
            frames=np.concatenate(features),
            step=np.ones(STATIC, dtype=np.float32),
            labels=np.concatenate(labels),
            lengths=np.array([len(part) for part in features], dtype=np.int64),
            parts=np.array([u.part for u in utterances]),
            class_names=CLASSES,
            source=found,
            speakers=np.array([u.speaker for u in utterances]),
            utterances=np.array([u.name for u in utterances]),
        )

    def routes(self, work: Path) -> Iterable[Route]:
        return ()


def read_labels(path: Path, frames: int) -> NDArray[np.int16]:
    """The class of each frame: that of the phone which covers the centre of the frame."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_LABELS + 1)
    except OSError as error:
        raise DataError(f"{path}: must be readable ({error.strerror or error})") from error
    if len(content) > _MOST_LABELS:
        raise DataError(f"{path}: labels of a sentence must take at most {_MOST_LABELS} bytes")
    starts: list[int] = []
    ends: list[int] = []
    classes: list[int] = []
    for number, line in enumerate(content.decode("latin-1").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        where = f"{path}, line {number}"
        if len(words) != 3 or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words[:2]):
            raise DataError(f"{where} (={line[:60]!r}) must be: first sample, sample after the last, phone")
        start, end = int(words[0]), int(words[1])
        if not (ends[-1] if ends else 0) <= start < end:
            raise DataError(f"{where}: phone from {start} to {end} must start where the one before ended, or later")
        try:
            label = class_of(words[2].lower())
        except KeyError:
            raise DataError(f"{where}: phone (={words[2][:20]!r}) must be one of the 61 labels of TIMIT") from None
        starts.append(start)
        ends.append(end)
        classes.append(NO_LABEL if label is None else label)
    if not starts:
        raise DataError(f"{path}: must hold labels, holds none")
    centres = frame_centres(frames)
    if starts[-1] > centres[-1] + 80:
        raise DataError(f"{path}: phones must start within the recording, the last at {starts[-1]}: is the audio cut off?")
    at = np.searchsorted(starts, centres, side="right") - 1
    covered = (at >= 0) & (centres < np.array(ends)[at])
    return np.where(covered, np.array(classes)[at], NO_LABEL).astype(np.int16)


def _held(folder: Path) -> dict[str, str]:
    """The names in a folder, by their lower-case form; none if it is not there or cannot be read."""
    try:
        return {name.lower(): name for name in os.listdir(folder)}
    except OSError:
        return {}


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise DataError(f"{folder}: must be a readable folder ({error.strerror or error})") from error


def _find(folder: Path) -> Iterator[Utterance]:
    """Every sentence that counts: without SA, and of TEST the core test only."""
    for name in _entries(folder):
        flat = _FLAT.fullmatch(name)
        if flat:
            part = TEST if flat[1].lower() in _FLAT_TEST else TRAIN
            yield from _sentences(folder / name, part, flat[2].lower())
        elif name.lower() in (TRAIN, TEST):
            for region in _entries(folder / name):
                if _REGION.fullmatch(region):
                    for speaker in _entries(folder / name / region):
                        if re.fullmatch(r"[fm][a-z]{3}\d", speaker, re.IGNORECASE):
                            yield from _sentences(folder / name / region / speaker, name.lower(), speaker.lower())


def _sentences(folder: Path, part: str, speaker: str) -> Iterator[Utterance]:
    if part == TEST and speaker not in CORE_TEST and not _FLAT.fullmatch(folder.name):
        return
    files: dict[str, dict[str, Path]] = {}
    for name in _entries(folder):
        found = _SENTENCE.fullmatch(name)  # "SX37.WAV.wav", a second copy that some archives hold, is passed over
        if found and not found[1].lower().startswith("sa"):
            files.setdefault(found[1].lower(), {})[found[2].lower()] = folder / name
    for sentence, pair in files.items():
        for kind in ("wav", "phn"):
            if kind not in pair:
                raise DataError(f"{folder}: sentence {sentence} must have a .WAV and a .PHN, lacks .{kind.upper()}")
        yield Utterance(part, speaker, sentence, pair["wav"], pair["phn"])


def _check_complete(utterances: list[Utterance], folder: Path) -> None:
    advice = "; partial=True accepts a part of the corpus"
    spoken: dict[tuple[str, str], int] = {}
    for utterance in utterances:
        key = (utterance.part, utterance.speaker)
        spoken[key] = spoken.get(key, 0) + 1
    trained = sum(part == TRAIN for part, _ in spoken)
    if trained != TRAIN_SPEAKERS:
        raise DataError(f"{folder}: training speakers of TIMIT (={trained}) must be {TRAIN_SPEAKERS}{advice}")
    lacking = sorted(CORE_TEST - {speaker for part, speaker in spoken if part == TEST})
    if lacking:
        raise DataError(f"{folder}: core test of TIMIT must have {len(CORE_TEST)} speakers, lacks {', '.join(lacking)}{advice}")
    for (part, speaker), count in spoken.items():
        if count != SENTENCES:
            raise DataError(f"{folder}: {part} speaker {speaker} has {count} sentences, must have {SENTENCES}{advice}")
