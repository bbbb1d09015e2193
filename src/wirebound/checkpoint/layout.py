"""The bytes of a file: a safetensors file whose metadata hold a JSON document and a sha256 (``docs/format.md``).

    8 bytes    N, the length of the header, little-endian
    N bytes    header: JSON, for each tensor its dtype, shape and place, and ``__metadata__``
    the rest   the tensors, one after another, without gaps
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

import torch

from wirebound.checkpoint.errors import CheckpointError

MAX_HEADER = 1 << 24  # bytes; room for a hundred thousand tensors
MAX_EXTENT = 1 << 48
METADATA, DOCUMENT, DIGEST = "__metadata__", "wirebound", "sha256"

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """Where one tensor is, in bytes after the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def pack_header(header: dict[str, Any]) -> bytes:
    """The header as it is written: padded, so that the tensors start at a multiple of 8 bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def content_hash(header: dict[str, Any]) -> Any:
    """A sha256 that has seen the header without its checksum, in canonical form; the tensors' bytes follow."""
    metadata = {key: value for key, value in header[METADATA].items() if key != DIGEST}
    canonical = json.dumps({**header, METADATA: metadata}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode())


def parse_header(raw: bytes, held: int) -> tuple[dict[str, Any], dict[str, Entry]]:
    """(the header, where its tensors are), if it accounts for each of the ``held`` bytes after it exactly once."""
    header = parse_json(raw, "the header")
    if not isinstance(header, dict):
        raise CheckpointError("the header must be one JSON object")
    metadata = header.get(METADATA)
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError("the header must have metadata that are texts: this is not a file of wirebound")
    if DOCUMENT not in metadata or DIGEST not in metadata:
        raise CheckpointError(f"the metadata must hold {DOCUMENT!r} and {DIGEST!r}: this is not a file of wirebound")
    entries = {name: _entry(name, value) for name, value in header.items() if name != METADATA}
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != at:
            raise CheckpointError(f"tensor {name!r} must start at byte {at}, starts at {entry.start}")
        at = entry.end
    if at != held:
        what = "the file is cut off" if at > held else "the file has bytes that belong to nothing"
        raise CheckpointError(f"the tensors take {at} bytes, the file holds {held}: {what}")
    return header, entries


def _entry(name: str, value: Any) -> Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"tensor {name!r} must have dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise CheckpointError(f"dtype (={str(dtype)[:20]!r}) of tensor {name!r} must be one of {', '.join(DTYPES)}")
    if not _counts(shape) or len(shape) > 16 or any(extent > MAX_EXTENT for extent in shape):
        raise CheckpointError(f"the shape of tensor {name!r} must be at most 16 extents in [0, 2^48]")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"data_offsets of tensor {name!r} must be where it starts and ends")
    # Extents beside a 0 cost no bytes, but torch multiplies them all the same.
    if math.prod(extent for extent in shape if extent) > MAX_EXTENT:
        raise CheckpointError(f"the shape of tensor {name!r} must not have more than 2^48 places")
    size = math.prod(shape) * DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != size:
        raise CheckpointError(f"tensor {name!r} must take {size} bytes by its shape, takes {offsets[1] - offsets[0]}")
    return Entry(DTYPES[dtype], tuple(shape), offsets[0], offsets[1])


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def parse_json(raw: bytes | str, what: str) -> Any:
    """JSON as the standard has it: no key twice, no NaN, no numbers beyond floats."""
    try:
        return json.loads(raw, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is not valid JSON ({type(error).__name__}: {str(error)[:80]})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number
