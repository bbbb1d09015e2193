"""The idx format of MNIST: a big-endian header (type, number of dimensions, extents), then the bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .content import read_file
from .errors import DataError

_UNSIGNED_BYTE = 0x08
_MOST_DIMENSIONS = 4


def parse_idx(content: bytes, where: str) -> NDArray[np.uint8]:
    """The array in ``content``; ``where`` names the file in errors.

    Only unsigned bytes, the one type image sets use. The header must account for every byte: nothing is
    allocated on the word of a header, and nothing may follow the data.
    """
    if len(content) < 4:
        raise DataError(f"{where}: idx header must be at least 4 bytes, file holds {len(content)}")
    zero, kind, dimensions = struct.unpack(">HBB", content[:4])
    if zero != 0 or kind != _UNSIGNED_BYTE or not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise DataError(
            f"{where}: idx magic (=0x{content[:4].hex()}) must be 0x0000080N, N in [1, {_MOST_DIMENSIONS}]"
        )
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
    array: NDArray[np.uint8] = np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy()
    return array


def read_idx(path: Path, limit: int) -> NDArray[np.uint8]:
    """The array in an idx file, plain or gzipped, of at most ``limit`` bytes when unpacked."""
    return parse_idx(read_file(path, limit), str(path))
