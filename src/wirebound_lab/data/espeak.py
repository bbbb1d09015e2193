"""The eSpeak NG synthesiser, through the library that the package espeakng-loader brings: speech and its phone times.

The library keeps state for its whole process beside the seed of its noise: the same calls give the same samples only
in a process that made no others before. ``spoken_make`` therefore runs in a process of its own.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DataError

# Names and numbers of the library's public header, speak_lib.h.
_SYNCHRONOUS = 2  # espeak_AUDIO_OUTPUT: samples to the callback, and return when all are there
_PHONEME_EVENTS, _DONT_EXIT = 0x0001, 0x8000  # options of espeak_Initialize
_LIST_END, _PHONEME = 0, 7  # espeak_EVENT_TYPE
_RATE, _PITCH = 1, 3  # espeak_PARAMETER
_CHARS_UTF8 = 1
_POS_CHARACTER = 1


class _Name(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Name),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@dataclass(frozen=True)
class Speech:
    """Samples at ``rate``, and the sample at which each phone starts, with the synthesiser's name for it."""

    samples: NDArray[np.int16]
    rate: int
    phones: tuple[tuple[int, str], ...]


class Synthesiser:
    """The engine; one for each process. ``seed`` decides its noise, which would otherwise follow the clock."""

    def __init__(self, seed: int) -> None:
        try:
            import espeakng_loader  # an optional package
        except ImportError as error:
            raise DataError(
                f"spoken: needs the package espeakng-loader: pip install 'wirebound[espeak]' ({error})"
            ) from error
        self._data = Path(espeakng_loader.get_data_path())
        try:
            self._library: Any = ctypes.CDLL(str(espeakng_loader.get_library_path()))
        except OSError as error:
            raise DataError(f"spoken: the library of espeakng-loader must be loadable ({error})") from error
        self._library.espeak_Synth.argtypes = [
            ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int,
            ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
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
            raise DataError(f"spoken: eSpeak NG (={self.version}) must be 1.52 or newer ({error})") from error
        self._callback = _Callback(self._collect)  # kept: the library holds only a pointer
        self._library.espeak_SetSynthCallback(self._callback)

    @property
    def version(self) -> str:
        return str(self._library.espeak_Info(None).decode())

    def voice(self, language: str, variant: str) -> None:
        # The library takes an unknown variant without a word, and speaks with the plain voice.
        if not (self._data / "voices" / "!v" / variant).is_file():
            raise DataError(f"spoken: voice variant (={variant!r}) must be one of eSpeak NG's")
        self._demand(self._library.espeak_SetVoiceByName(f"{language}+{variant}".encode()), f"voice {language}+{variant}")

    def speak(self, text: str, words_a_minute: int, pitch: int) -> Speech:
        self._pieces, self._phones = [], []
        for parameter, value in ((_RATE, words_a_minute), (_PITCH, pitch)):
            self._demand(self._library.espeak_SetParameter(parameter, value, 0), f"parameter {parameter} = {value}")
        raw = text.encode()
        result = self._library.espeak_Synth(raw, len(raw) + 1, 0, _POS_CHARACTER, 0, _CHARS_UTF8, None, None)
        self._demand(result, f"text {text!r}")
        samples = np.frombuffer(b"".join(self._pieces), dtype=np.int16)
        if len(samples) == 0 or not self._phones:
            raise DataError(f"spoken: eSpeak NG must give samples and phones for {text!r}, gave none")
        return Speech(samples, self.rate, tuple(self._phones))

    def _demand(self, result: int, what: str) -> None:
        if result != 0:
            raise DataError(f"spoken: eSpeak NG must accept {what}, returned {result}")

    def _collect(self, samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            self._pieces.append(ctypes.string_at(samples, 2 * count))
        at = 0
        while events[at].type != _LIST_END:
            if events[at].type == _PHONEME:
                # The field's raw bytes: it has no end mark when the name fills it.
                name = ctypes.string_at(ctypes.addressof(events[at].id), 8).split(b"\0")[0]
                self._phones.append((int(events[at].sample), name.decode("utf-8", "replace")))
            at += 1
        return 0
