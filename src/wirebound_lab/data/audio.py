"""Recordings of speech: NIST SPHERE or RIFF files of 16 kHz, one channel, 16 bits, decoded by soundfile.

The decoder takes a file that was cut off for a shorter one. So headers are read here first, and what they promise must
be there.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .content import read_file
from .errors import DataError
from .mfcc import RATE

_MOST_HEADER = 65_536
_MOST_SAMPLES = 60 * RATE  # a minute; the longest sentence of TIMIT has eight seconds


def read_audio(path: Path) -> NDArray[np.int16]:
    """The samples of a recording."""
    content = read_file(path, _MOST_HEADER + 2 * _MOST_SAMPLES)
    try:
        _check_complete(content)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    try:
        import soundfile  # here: an optional package, and most runs need no audio
    except (ImportError, OSError) as error:  # OSError: its own library is missing
        raise DataError(f"{path}: needs the package soundfile: pip install 'wirebound[speech]' ({error})") from error
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as sound:
            if sound.samplerate != RATE:
                raise DataError(f"{path}: sample rate (={sound.samplerate}) must be {RATE}")
            if sound.channels != 1 or sound.subtype != "PCM_16":
                raise DataError(f"{path}: must be one channel of 16-bit PCM, has {sound.channels} of {sound.subtype}")
            if not 1 <= sound.frames <= _MOST_SAMPLES:
                raise DataError(f"{path}: samples (={sound.frames}) must be in [1, {_MOST_SAMPLES}]")
            samples: NDArray[np.int16] = sound.read(dtype="int16")
    except DataError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:  # soundfile's own errors are RuntimeErrors
        raise DataError(f"{path}: must be audio that soundfile can decode ({error})") from error
    return samples


def _check_complete(content: bytes) -> None:
    """Raise unless the file holds as many bytes of samples as its header promises."""
    if content[:8] == b"NIST_1A\n":
        kind, promised, held = "SPHERE", *_sphere(content)
    elif content[:4] == b"RIFF":
        kind, promised, held = "RIFF", *_riff(content)
    else:
        raise DataError(f"must be a NIST SPHERE or RIFF file, starts with {content[:8]!r}")
    if promised > held:
        raise DataError(f"{kind} header promises {promised} bytes of samples, file holds {held}: it is cut off")


def _sphere(content: bytes) -> tuple[int, int]:
    """A text header of fixed length, ``name -type value`` a line, then the samples."""
    length, most = content[8:16], min(_MOST_HEADER, len(content))
    if not length.strip().isdigit() or not 16 < int(length) <= most:
        raise DataError(f"length of the SPHERE header (={length!r}) must be in (16, {most}]")
    lines = content[16 : int(length)].decode("latin-1").split("end_head")[0].splitlines()
    fields = {line.split(" ")[0]: " ".join(line.split(" ")[2:]).strip() for line in lines}
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        raise DataError(f"sample_coding (={coding!r}) must be 'pcm': unpack the file with NIST's w_decode first")
    promised = 1
    for name in ("sample_count", "sample_n_bytes", "channel_count"):
        value = fields.get(name, "")
        if not (value.isascii() and value.isdigit()) or len(value) > 12:  # "²" is a digit, too
            raise DataError(f"{name} (={value!r}) of the SPHERE header must be a whole number")
        promised *= int(value)
    return promised, len(content) - int(length)


def _riff(content: bytes) -> tuple[int, int]:
    """Chunks, each with a name and a length; the samples are in ``data``."""
    at = 12
    while at + 8 <= len(content):
        name, length = struct.unpack_from("<4sI", content, at)
        if name == b"data":
            return length, len(content) - at - 8
        at += 8 + length + length % 2
    raise DataError("must have a chunk of samples, the RIFF file has none: it is cut off")
