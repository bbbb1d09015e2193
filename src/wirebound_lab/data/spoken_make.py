"""Makes the corpus ``spoken``: ``python -m wirebound_lab.data.spoken_make FILE``.

A program of its own, because the synthesiser repeats itself only in a fresh process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import DataError
from .espeak import Speech, Synthesiser
from .mfcc import RATE, frame_centres, mfcc
from .phones_file import pack_phones
from .spoken_recipe import LANGUAGE, SEED, Line, class_of, lines, sentences
from .timit_phones import CLASSES

_SILENCE = CLASSES.index("sil")


def make(chosen: Iterable[Line]) -> bytes:
    """The corpus of these lines as the content of its file."""
    engine, texts = Synthesiser(SEED), sentences()
    spoken, features, labels = list(chosen), [], []
    voice = ""
    for line in spoken:
        if line.voice != voice:
            engine.voice(LANGUAGE, line.voice)
            voice = line.voice
        speech = engine.speak(texts[line.number], line.speed, line.pitch)
        features.append(mfcc(resample(speech.samples, speech.rate)))
        labels.append(frame_labels(speech, len(features[-1])))
    return pack_phones(
        np.concatenate(features),
        np.concatenate(labels),
        np.array([len(part) for part in features]),
        CLASSES,
        np.array([line.test for line in spoken]),
        [line.name for line in spoken],
        [line.voice for line in spoken],
    )


def resample(samples: NDArray[np.int16], rate: int) -> NDArray[np.float64]:
    """The signal at 16 kHz, by its spectrum: exact below both band limits; speech starts and ends in silence."""
    if rate == RATE:
        return samples.astype(np.float64)
    unit = int(np.gcd(rate, RATE))
    whole = -(-len(samples) // (rate // unit))  # so that both lengths are whole numbers of samples
    before, after = whole * (rate // unit), whole * (RATE // unit)
    spectrum = np.fft.rfft(samples.astype(np.float64), before)
    kept = np.zeros(after // 2 + 1, dtype=np.complex128)
    shared = min(len(kept), len(spectrum)) - 1  # without the last, which is one number for two
    kept[:shared] = spectrum[:shared]
    signal: NDArray[np.float64] = np.fft.irfft(kept, after) * (after / before)
    return signal[: -(-len(samples) * RATE // rate)]


def frame_labels(speech: Speech, frames: int) -> NDArray[np.uint8]:
    """The class at the centre of each frame: a phone lasts until the next starts, and before the first is silence."""
    try:
        classes = np.array([_SILENCE, *(class_of(name) for _, name in speech.phones)], dtype=np.uint8)
    except KeyError as error:
        raise DataError(f"spoken: phone (={error.args[0]!r}) of eSpeak NG must be in the table of spoken_recipe") from None
    starts = [start for start, _ in speech.phones]
    return classes[np.searchsorted(starts, frame_centres(frames) * speech.rate / RATE, side="right")]


def main(arguments: list[str]) -> int:
    try:
        content = make(lines())
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    Path(arguments[0]).write_bytes(content)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
