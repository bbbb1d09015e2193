"""Reading files without trusting them: bounded, checked against size and sha256, never extracted to disk.

Whatever a file holds, a read ends with the content or with a :class:`DataError`, and takes no more memory
than the caller's limit.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from .errors import DataError
from .sources import File

_GZIP_MAGIC = b"\x1f\x8b"


def check(content: bytes | memoryview, file: File, where: str) -> None:
    """Raise unless ``content`` has the size and the sha256 of ``file``."""
    if len(content) != file.size:
        raise DataError(f"{where}: size of the content (={len(content)}) must be {file.size} bytes")
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise DataError(f"{where}: sha256 of the content (={digest}) must be {file.sha256}")


def is_gzip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == _GZIP_MAGIC


def read_file(path: Path, limit: int, where: str = "") -> bytes:
    """The content of a plain or gzipped file, which must not be longer than ``limit`` bytes.

    ``where`` is the name in errors, if it is not the path.
    """
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


def read_members(path: Path, files: Iterable[File], limit: int) -> Iterator[tuple[File, bytes]]:
    """The members of a .tar.gz with exactly these names, checked, in the order of the archive.

    Read as a stream in which at most ``limit`` unpacked bytes are looked at, headers included, so an archive
    that unpacks to terabytes costs neither memory nor time. Raises at the end if a member was not there.
    """
    wanted = {file.name: file for file in files}
    try:
        with gzip.open(path, "rb") as packed:
            bounded = io.BufferedReader(_Bounded(packed, limit, str(path)))
            with tarfile.open(fileobj=bounded, mode="r|") as archive:
                for member in archive:
                    if member.name not in wanted:
                        continue
                    file = wanted.pop(member.name)
                    where = f"{path.name}:{member.name}"
                    if not member.isreg() or member.size != file.size:
                        raise DataError(
                            f"{where}: must be a regular file of {file.size} bytes, size is {member.size}"
                        )
                    stream = archive.extractfile(member)
                    assert stream is not None  # it is one for every regular file
                    content = stream.read()
                    check(content, file, where)
                    yield file, content
                    if not wanted:
                        return
    except DataError:
        raise
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: must be an intact .tar.gz ({error})") from error
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
