"""Reading files without trusting them: bounded, checked against size and sha256, never extracted to disk.

Whatever a file holds, a read ends with the content or with a :class:`DataError`, and takes no more memory
than the caller's limit.
"""

import contextlib
import gzip
import hashlib
import io
import math
import os
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_UNSIGNED_BYTE = 0x08  # the one type of idx that image sets use
_MOST_DIMENSIONS = 4


class DataError(ValueError):
    """A file, an archive or an argument breaks a rule; the text names it, the rule and the value."""


@dataclass(frozen=True)
class Attempt:
    """One place that was tried, and why it did not give the data set."""

    where: str
    reason: str


@contextlib.contextmanager
def told_as(rule: str, *kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds as a DataError that says which rule was broken."""
    try:
        yield
    except DataError:
        raise
    except kinds as error:
        raise DataError(f"{rule} ({str(error)[:300]})") from error


class DataUnavailable(DataError):
    """A data set was found nowhere; ``attempts`` holds every place that was tried, in order."""

    def __init__(self, name: str, attempts: Sequence[Attempt], advice: str = "") -> None:
        self.name = name
        self.attempts = tuple(attempts)
        lines = [f"data set {name!r} was not found. Tried, in this order:"]
        lines += [f"  {number}. {a.where}: {a.reason}" for number, a in enumerate(self.attempts, 1)]
        lines += [advice] if advice else []
        lines.append(
            f"Set WIREBOUND_DATA to a folder that holds {name}/, or pass its folder as path;"
            f" the file names are in wirebound_lab.data.{name}."
        )
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class File:
    """A file that is known to the last bit: its name, and the size and sha256 of its content, once unpacked by gzip."""

    name: str
    size: int
    sha256: str


def absent(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of the ``names`` that ``folder`` lacks."""
    return [name for name in names if not os.path.isfile(folder / name)]  # Path.is_file raises without permission


def check(content: bytes | memoryview, file: File, where: str) -> None:
    """Raise unless ``content`` has the size and the sha256 of ``file``."""
    if len(content) != file.size:
        raise DataError(f"{where}: size of the content (={len(content)}) must be {file.size} bytes")
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise DataError(f"{where}: sha256 of the content (={digest}) must be {file.sha256}")


def is_gzip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def read_file(path: Path, limit: int, where: str = "") -> bytes:
    """The content of a plain or gzipped file of at most ``limit`` bytes; ``where`` names it in errors, not the path."""
    where = where or str(path)
    try:
        with gzip.open(path, "rb") if is_gzip(path) else path.open("rb") as stream:
            # One byte more than allowed is enough to know, and for gzip it reaches the checksum at the end.
            content = stream.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{where}: gzip stream must be complete and intact ({error})") from error
    except OSError as error:
        raise DataError(f"{where}: must be readable ({error.strerror or error})") from error
    if len(content) > limit:
        raise DataError(f"{where}: content must be at most {limit} bytes, holds more")
    return content


def read_known(path: Path, file: File) -> bytes:
    """The content of a plain or gzipped file, which must be that of ``file``."""
    content = read_file(path, file.size)
    check(content, file, str(path))
    return content


def read_members(path: Path, files: Iterable[File], limit: int, folder: str = "") -> Iterator[tuple[File, bytes]]:
    """The members of a .tar.gz with exactly these names in ``folder``, checked, in the order of the archive.

    Read as a stream in which at most ``limit`` unpacked bytes are looked at, headers included, so an archive
    that unpacks to terabytes costs neither memory nor time. Raises at the end if a member was not there.
    """
    wanted = {folder + file.name: file for file in files}
    kinds = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError)
    with told_as(f"{path}: must be an intact .tar.gz", *kinds), gzip.open(path, "rb") as packed:
        bounded = io.BufferedReader(_Bounded(packed, limit, str(path)))
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            for member in archive:
                if member.name not in wanted:
                    continue
                file, where = wanted.pop(member.name), f"{path.name}:{member.name}"
                if not member.isreg() or member.size != file.size:
                    raise DataError(f"{where}: must be a regular file of {file.size} bytes, size is {member.size}")
                stream = archive.extractfile(member)
                assert stream is not None  # it is one for every regular file
                content = stream.read()
                check(content, file, where)
                yield file, content
                if not wanted:
                    return
    raise DataError(f"{path}: must hold {', '.join(wanted)}")


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more than ``limit`` bytes."""

    def __init__(self, stream: gzip.GzipFile, limit: int, where: str) -> None:
        self._stream = stream
        self._left = limit
        self._rule = f"{where}: must unpack to at most {limit} bytes"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise DataError(self._rule)
        buffer[: len(data)] = data
        return len(data)


def parse_idx(content: bytes, where: str) -> NDArray[np.uint8]:
    """The array in the idx format of MNIST: a big-endian header (type, number of dimensions, extents), then bytes.

    The header must account for every byte: nothing is allocated on the word of a header, and nothing may follow.
    """
    if len(content) < 4:
        raise DataError(f"{where}: idx header must be at least 4 bytes, file holds {len(content)}")
    zero, kind, dimensions = struct.unpack(">HBB", content[:4])
    if zero != 0 or kind != _UNSIGNED_BYTE or not 1 <= dimensions <= _MOST_DIMENSIONS:
        magic = content[:4].hex()
        raise DataError(f"{where}: idx magic (=0x{magic}) must be 0x0000080N, N in [1, {_MOST_DIMENSIONS}]")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{where}: idx header must be {start} bytes, file holds {len(content)}")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if 0 in shape:
        raise DataError(f"{where}: idx extents (={shape}) must be at least 1")
    promised, held = math.prod(shape), len(content) - start
    if promised != held:
        raise DataError(f"{where}: idx header promises {promised} bytes (shape {shape}), file holds {held}")
    # A copy, because torch wants memory it may write to.
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy()
