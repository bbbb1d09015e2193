"""Recordings of speech: NIST SPHERE or RIFF files of 16 kHz, one channel, 16 bits, decoded by soundfile.

The decoder takes a file that was cut off for a shorter one. So headers are read here first, and what they promise must
be there.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from .errors import DataError
from .mfcc import RATE

_MOST_HEADER = 65_536
_MOST_SAMPLES = 60 * RATE  # a minute; the longest sentence of TIMIT has eight seconds


def read_audio(path: Path) -> NDArray[np.int16]:
    """The samples of a recording."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            magic = stream.read(8)
            if magic == b"NIST_1A\n":
                _check_sphere(stream, size, path)
            elif magic[:4] == b"RIFF":
                _check_riff(stream, size, path)
            else:
                raise DataError(f"{path}: must be a NIST SPHERE or RIFF file, starts with {magic!r}")
    except OSError as error:
        raise DataError(f"{path}: must be readable ({error.strerror or error})") from error
    return _decode(path)


def _decode(path: Path) -> NDArray[np.int16]:
    try:
        import soundfile  # here: an optional package, and most runs need no audio
    except (ImportError, OSError) as error:  # OSError: its own library is missing
        raise DataError(f"{path}: needs the package soundfile: pip install 'wirebound[speech]' ({error})") from error
    try:
        with soundfile.SoundFile(str(path)) as sound:
            if sound.samplerate != RATE:
                raise DataError(f"{path}: sample rate (={sound.samplerate}) must be {RATE}")
            if sound.channels != 1 or sound.subtype != "PCM_16":
                raise DataError(
                    f"{path}: must be one channel of 16-bit PCM, has {sound.channels} of {sound.subtype}"
                )
            if not 1 <= sound.frames <= _MOST_SAMPLES:
                raise DataError(f"{path}: samples (={sound.frames}) must be in [1, {_MOST_SAMPLES}]")
            samples: NDArray[np.int16] = sound.read(dtype="int16")
    except (RuntimeError, TypeError, ValueError) as error:  # soundfile's own errors are RuntimeErrors
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: must be audio that soundfile can decode ({error})") from error
    return samples


def _check_sphere(stream: BinaryIO, size: int, path: Path) -> None:
    """A text header of fixed length, ``name -type value`` a line, then the samples."""
    length = stream.read(8)
    if not length.strip().isdigit() or not 16 < int(length) <= min(_MOST_HEADER, size):
        raise DataError(f"{path}: length of the SPHERE header (={length!r}) must be in (16, {min(_MOST_HEADER, size)}]")
    text = stream.read(int(length) - 16).decode("latin-1")
    fields = {}
    for line in text.split("end_head")[0].splitlines():
        name, _, rest = line.partition(" ")
        fields[name] = rest.partition(" ")[2].strip()
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        raise DataError(f"{path}: sample_coding (={coding!r}) must be 'pcm': unpack the file with NIST's w_decode first")
    numbers = {name: fields.get(name, "") for name in ("sample_count", "sample_n_bytes", "channel_count")}
    for name, value in numbers.items():
        if not (value.isascii() and value.isdigit()) or len(value) > 12:  # "²" is a digit, too
            raise DataError(f"{path}: {name} (={value!r}) of the SPHERE header must be a whole number")
    count, width, channels = (int(value) for value in numbers.values())
    promised, held = count * width * channels, size - int(length)
    if promised > held:
        raise DataError(f"{path}: SPHERE header promises {promised} bytes of samples, file holds {held}: it is cut off")


def _check_riff(stream: BinaryIO, size: int, path: Path) -> None:
    """Chunks, each with a name and a length; the samples are in ``data``."""
    at = 12
    while at + 8 <= size:
        stream.seek(at)
        name, length = struct.unpack("<4sI", stream.read(8))
        if name == b"data":
            if at + 8 + length > size:
                raise DataError(
                    f"{path}: RIFF header promises {length} bytes of samples, file holds {size - at - 8}: it is cut off"
                )
            return
        at += 8 + length + length % 2
    raise DataError(f"{path}: must have a chunk of samples, the RIFF file has none: it is cut off")
