"""NumPy's .npz files, read without trusting them: no pickle, nothing allocated on the word of a header.

An .npz is a zip of .npy files; each of those has a text header (type and shape) and then the bytes. Whatever a file
holds, a read ends with the arrays or with a :class:`DataError`, and takes no more memory than the caller's limit.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DataError

_END = 22  # bytes of the record at the end of a zip without a comment
_MOST_MEMBERS = 64
_MOST_DIRECTORY = 16_384  # bytes of its list of members
_DEFLATE = 1032  # deflate shrinks at most by this: a member that claims more lies
_HEADER = re.compile(
    rb"\{'descr': '([<|][a-zA-Z]\d{1,4})', 'fortran_order': False, 'shape': \(((?:\d{1,12}, ?)*(?:\d{1,12})?)\), \} *\n"
)
_KINDS = frozenset("biufU")  # truth, whole numbers, floats, text: never objects


def parse_npz(content: bytes, where: str, limit: int) -> dict[str, NDArray[Any]]:
    """The arrays in an .npz, by name, read-only; unpacked they may take ``limit`` bytes in all."""
    _check_end(content, where)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_members(members, len(content), where, limit)
            return {
                member.filename.removesuffix(".npy"): _parse_npy(
                    _unpack(archive, member, where), f"{where}:{member.filename}"
                )
                for member in members
            }
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(f"{where}: must be an intact .npz ({str(error)[:200]})") from error
    except (RuntimeError, struct.error) as error:  # encrypted, an unknown way of packing, a record cut off
        raise DataError(f"{where}: must be an .npz as NumPy writes it ({str(error)[:200]})") from error


def _check_end(content: bytes, where: str) -> None:
    """The list of members must be short, before anything makes objects of it."""
    end = content[-_END:]
    if len(end) < _END or end[:4] != b"PK\x05\x06":
        raise DataError(f"{where}: must end as an .npz ends; is it cut off?")
    count, size = struct.unpack("<HI", end[10:16])
    if count > _MOST_MEMBERS or size > _MOST_DIRECTORY or content[-_END - 20 : -_END - 16] == b"PK\x06\x07":
        raise DataError(f"{where}: must hold at most {_MOST_MEMBERS} arrays, lists {count} in {size} bytes")


def _check_members(members: list[zipfile.ZipInfo], size: int, where: str, limit: int) -> None:
    names = [member.filename for member in members]
    if len(set(names)) != len(names):
        raise DataError(f"{where}: must hold each array once, holds one twice")
    for member in members:
        if not re.fullmatch(r"[a-z_]{1,40}\.npy", member.filename):
            raise DataError(f"{where}: members must be arrays (NAME.npy), one is {member.filename[:60]!r}")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{where}:{member.filename}: must be stored or deflated, is of type {member.compress_type}")
        if member.file_size > _DEFLATE * member.compress_size:
            raise DataError(
                f"{where}:{member.filename}: {member.compress_size} bytes cannot unpack to {member.file_size}"
            )
        if member.compress_size > size:
            raise DataError(f"{where}:{member.filename}: claims {member.compress_size} bytes of a file of {size}")
    unpacked = sum(member.file_size for member in members)
    if unpacked > limit:
        raise DataError(f"{where}: must unpack to at most {limit} bytes, claims {unpacked}")


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> bytes:
    with archive.open(member) as stream:
        content = stream.read(member.file_size + 1)
    if len(content) != member.file_size:
        raise DataError(f"{where}:{member.filename}: must unpack to {member.file_size} bytes, gives {len(content)}")
    return content


def _parse_npy(content: bytes, where: str) -> NDArray[Any]:
    if content[:8] != b"\x93NUMPY\x01\x00" or len(content) < 10:
        raise DataError(f"{where}: must be an .npy of version 1.0, starts with {content[:8].hex()}")
    start = 10 + int.from_bytes(content[8:10], "little")
    found = _HEADER.fullmatch(content, 10, start)
    if found is None or len(content) < start:
        raise DataError(f"{where}: header must be as NumPy writes it, is {bytes(content[10 : min(start, 130)])!r}")
    text, extents = found[1].decode(), found[2].decode()
    try:
        dtype = np.dtype(text)
    except TypeError as error:
        raise DataError(f"{where}: type (={text!r}) must be one of NumPy's") from error
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise DataError(f"{where}: type (={text!r}) must be truth, numbers or text")
    shape = tuple(int(extent) for extent in extents.split(",") if extent.strip())
    promised, held = math.prod(shape) * dtype.itemsize, len(content) - start
    if len(shape) > 4 or promised != held:
        raise DataError(f"{where}: header promises {promised} bytes ({text}, shape {shape}), there are {held}")
    array: NDArray[Any] = np.frombuffer(content, dtype=dtype, offset=start).reshape(shape)
    if dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise DataError(f"{where}: truth must be 0 or 1, one is {array.view(np.uint8).max()}")
    if dtype.kind == "U" and array.size:
        points = array.view(np.uint32)
        if points.max() > 0x10FFFF or ((points >= 0xD800) & (points <= 0xDFFF)).any():
            raise DataError(f"{where}: text must be of Unicode characters")
    return array
