"""Makes the corpus ``spoken`` by the eSpeak NG synthesiser: ``python -m wirebound_lab.data.espeak FILE``.

The library, which the package espeakng-loader brings, keeps state for its whole process beside the seed of its noise:
the same calls give the same samples only in a process that made no others before. So this is a program of its own.
"""

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .content import DataError, told_as
from .mfcc import RATE, frame_centres, mfcc
from .speech import pack_phones
from .spoken import LANGUAGE, SEED, Line, class_name, lines, sentences
from .timit import CLASSES

# Names and numbers of the library's public header, speak_lib.h.
_SYNCHRONOUS = 2  # espeak_AUDIO_OUTPUT: samples to the callback, and return when all are there
_PHONEME_EVENTS, _DONT_EXIT = 0x0001, 0x8000  # options of espeak_Initialize
_LIST_END, _PHONEME = 0, 7  # espeak_EVENT_TYPE
_RATE, _PITCH = 1, 3  # espeak_PARAMETER
_CHARS_UTF8 = _POS_CHARACTER = 1


class _Event(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("type", "identifier", "text", "length", "milliseconds", "sample")),
        ("user_data", ctypes.c_void_p),
        ("name", ctypes.c_char * 8),  # of a union, the member that holds a phone; it may lack an end mark
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class Speech(NamedTuple):
    """Samples at ``rate``, and the sample at which each phone starts, with the synthesiser's name for it."""

    samples: NDArray[np.int16]
    rate: int
    phones: tuple[tuple[int, str], ...]


class Synthesiser:
    """The engine; one for each process. ``seed`` decides its noise, which would otherwise follow the clock."""

    def __init__(self, seed: int) -> None:
        with told_as("spoken: needs espeakng-loader: pip install 'wirebound[espeak]'", ImportError):
            import espeakng_loader  # an optional package
        self._data = Path(espeakng_loader.get_data_path())
        with told_as("spoken: the library of espeakng-loader must be loadable", OSError):
            self._library: Any = ctypes.CDLL(str(espeakng_loader.get_library_path()))
        number, pointer = ctypes.c_uint, ctypes.c_void_p
        types: Any = [ctypes.c_char_p, ctypes.c_size_t, number, ctypes.c_int, number, number, pointer, pointer]
        self._library.espeak_Synth.argtypes = types
        self._library.espeak_Info.restype = ctypes.c_char_p
        self._pieces: list[bytes] = []
        self._phones: list[tuple[int, str]] = []
        options = _PHONEME_EVENTS | _DONT_EXIT
        self.rate = int(self._library.espeak_Initialize(_SYNCHRONOUS, 0, str(self._data).encode(), options))
        if self.rate <= 0:
            raise DataError(f"spoken: eSpeak NG must start with its data in {self._data}, returned {self.rate}")
        try:
            self._library.espeak_ng_SetRandSeed(ctypes.c_long(seed))
        except AttributeError as error:
            version = self._library.espeak_Info(None).decode()
            raise DataError(f"spoken: eSpeak NG (={version}) must be 1.52 or newer ({error})") from error
        self._callback = _Callback(self._collect)  # kept: the library holds only a pointer
        self._library.espeak_SetSynthCallback(self._callback)

    def voice(self, language: str, variant: str) -> None:
        # The library takes an unknown variant without a word, and speaks with the plain voice.
        if not (self._data / "voices" / "!v" / variant).is_file():
            raise DataError(f"spoken: voice variant (={variant!r}) must be one of eSpeak NG's")
        self._demand("SetVoiceByName", (f"{language}+{variant}".encode(),), f"voice {language}+{variant}")

    def speak(self, text: str, words_a_minute: int, pitch: int) -> Speech:
        self._pieces, self._phones = [], []
        for parameter, value in ((_RATE, words_a_minute), (_PITCH, pitch)):
            self._demand("SetParameter", (parameter, value, 0), f"parameter {parameter} = {value}")
        raw = text.encode()
        self._demand("Synth", (raw, len(raw) + 1, 0, _POS_CHARACTER, 0, _CHARS_UTF8, None, None), f"text {text!r}")
        samples = np.frombuffer(b"".join(self._pieces), dtype=np.int16)
        if len(samples) == 0 or not self._phones:
            raise DataError(f"spoken: eSpeak NG must give samples and phones for {text!r}, gave none")
        return Speech(samples, self.rate, tuple(self._phones))

    def _demand(self, function: str, arguments: tuple[Any, ...], what: str) -> None:
        result = getattr(self._library, f"espeak_{function}")(*arguments)
        if result != 0:
            raise DataError(f"spoken: eSpeak NG must accept {what}, returned {result}")

    def _collect(self, samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            self._pieces.append(ctypes.string_at(samples, 2 * count))
        at = 0
        while events[at].type != _LIST_END:
            if events[at].type == _PHONEME:
                self._phones.append((int(events[at].sample), events[at].name.decode("utf-8", "replace")))
            at += 1
        return 0


def make(chosen: Iterable[Line]) -> bytes:
    """The corpus of these lines as the content of its file."""
    engine, texts, voice = Synthesiser(SEED), sentences(), ""
    spoken, features, labels = list(chosen), [], []
    for line in spoken:
        if line.voice != voice:
            engine.voice(LANGUAGE, line.voice)
            voice = line.voice
        speech = engine.speak(texts[line.number], line.speed, line.pitch)
        features.append(mfcc(resample(speech.samples, speech.rate)))
        labels.append(frame_labels(speech, len(features[-1])))
    lengths, is_test = np.array([len(part) for part in features]), np.array([line.test for line in spoken])
    names, voices = ([line.name for line in spoken], [line.voice for line in spoken])
    return pack_phones(np.concatenate(features), np.concatenate(labels), lengths, CLASSES, is_test, names, voices)


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
        names = ["sil", *(class_name(name) for _, name in speech.phones)]
    except KeyError as error:
        raise DataError(f"spoken: phone (={error.args[0]!r}) of eSpeak NG must be in the table of spoken.py") from None
    classes = np.array([CLASSES.index(name) for name in names], dtype=np.uint8)
    starts = [start for start, _ in speech.phones]
    return classes[np.searchsorted(starts, frame_centres(frames) * speech.rate / RATE, side="right")]


if __name__ == "__main__":
    try:
        Path(sys.argv[1]).write_bytes(make(lines()))
    except DataError as error:
        raise SystemExit(str(error)) from None
