"""The bytes of a checkpoint: a safetensors file whose metadata hold a JSON document and a sha256 (``docs/format.md``).

    8 bytes    N, the length of the header, little-endian
    N bytes    header: JSON, for each tensor its dtype, shape and place, and ``__metadata__``
    the rest   the tensors, one after another, without gaps

``safetensors`` reads it, but its writer orders metadata at random and holds a second copy of all tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from wirebound.checkpoint.atomic import same_file, write_file

MAX_HEADER = 1 << 24  # bytes; room for a hundred thousand tensors
METADATA, DOCUMENT, DIGEST = "__metadata__", "wirebound", "sha256"
_NAMES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
CODES = dict(zip((getattr(torch, name) for name in _NAMES), ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"], strict=True))
DTYPES: dict[str, torch.dtype] = {code: dtype for dtype, code in CODES.items()}


class CheckpointError(ValueError):
    """A checkpoint cannot be used, or its content cannot be kept; the message says the rule and what to do."""


def require(holds: object, message: str) -> None:
    if not holds:
        raise CheckpointError(message)


class Entry(NamedTuple):
    """A tensor as the header describes it."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def pack_header(header: dict[str, Any]) -> bytes:
    """The header as it is written: padded, so that the tensors start at a multiple of 8 bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def content_hash(header: dict[str, Any]) -> Any:
    """A sha256 that has seen the header without its checksum, in canonical form; the tensors' bytes follow."""
    metadata = {key: value for key, value in header[METADATA].items() if key != DIGEST}
    canonical = json.dumps({**header, METADATA: metadata}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode())


def write_container(path: Path, tensors: Mapping[str, Tensor], document: dict[str, Any]) -> None:
    """Write tensors and document atomically; what ``path`` held before stays whole until the end."""
    contents: list[Any] = []
    header: dict[str, Any] = {METADATA: {"format": "pt", DOCUMENT: json.dumps(document, allow_nan=False)}}
    at = 0
    # The widest first: every tensor then starts at a multiple of its width.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        known = tensor.dtype in CODES and tensor.layout is torch.strided
        require(known, f"tensor {name!r} ({tensor.dtype}, {tensor.layout}) cannot be kept")
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        contents.append(flat.numpy().data)
        places = [at, at + flat.numel()]
        header[name] = {"dtype": CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": places}
        at += flat.numel()
    digest = content_hash(header)
    for content in contents:
        digest.update(content)
    header[METADATA][DIGEST] = digest.hexdigest()
    packed = pack_header(header)
    fits = len(packed) <= MAX_HEADER
    require(fits, f"a checkpoint's header (={len(packed)} bytes) must be at most {MAX_HEADER} bytes")
    pieces = (len(packed).to_bytes(8, "little"), packed, *contents)
    write_file(path, lambda stream: [stream.write(piece) for piece in pieces])


class Container:
    """An open file whose header and checksum are right; tensors are read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path, self._given = path, set[str]()
        try:
            # Not blocking, so that a pipe with a file's name is an error and not a wait.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(descriptor, "rb", buffering=0) as stream:
                self._open(stream)
        except (CheckpointError, SafetensorError) as error:
            told = "" if isinstance(error, CheckpointError) else "it is damaged or cut off, use an earlier one: "
            raise CheckpointError(f"{path} cannot be read: {told}{' '.join(str(error).split())[:300]}") from None
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error

    def _open(self, stream: BinaryIO) -> None:
        status = os.fstat(stream.fileno())
        require(stat.S_ISREG(status.st_mode), "it is not a regular file")
        length = int.from_bytes(stream.read(8), "little")
        if status.st_size < 8 or length > status.st_size - 8:
            raise CheckpointError(f"its header does not fit in {status.st_size} bytes: it is cut off or no checkpoint")
        require(length <= MAX_HEADER, f"its header (={length} bytes) must be at most {MAX_HEADER} bytes")
        header = parse_json(b"".join(_pieces(stream, length)), "the header")
        metadata = header.get(METADATA) if isinstance(header, dict) else None
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise CheckpointError("it is not a file of wirebound: its header must be one JSON object with metadata")
        known = DOCUMENT in metadata and DIGEST in metadata
        require(known, f"it is not a file of wirebound: its metadata must hold {DOCUMENT!r} and {DIGEST!r}")
        # Opening checks that the tensors fill the file without gaps, and that each takes the bytes of its shape.
        self._file = safe_open(self.path, framework="pt")
        require(same_file(stream.fileno(), self.path), "it was replaced while it was read: read it again")
        self.entries = {name: _entry(name, value) for name, value in header.items() if name != METADATA}
        digest = content_hash(header)
        for piece in _pieces(stream, status.st_size - 8 - length):
            digest.update(piece)
        whole = digest.hexdigest() == metadata[DIGEST]
        require(whole, "its content does not match its sha256: the file is damaged; use an earlier one")
        self.document = parse_json(metadata[DOCUMENT], "its document")

    def tensor(self, name: str) -> Tensor:
        """A tensor of the file, once, so that a short document cannot ask for a long tensor a million times."""
        require(name in self.entries, f"{self.path} must hold tensor {name!r}")
        require(name not in self._given, f"tensor {name[:80]!r} must be referred to once")
        self._given.add(name)
        found: Tensor = self._file.get_tensor(name)
        if found.dtype is torch.bool:
            require((found.view(torch.uint8) <= 1).all(), f"tensor {name!r} of {self.path} must be 0s and 1s")
        return found.clone()  # its memory is the file's

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *error: object) -> None:
        del self._file


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        piece = stream.read(min(1 << 20, size))
        require(piece, "the file became shorter while it was read")
        yield piece
        size -= len(piece)


def _entry(name: str, value: dict[str, Any]) -> Entry:
    """What ``safetensors`` has found right must also be what torch and the functions here can take."""
    require(set(value) == {"dtype", "shape", "data_offsets"}, f"tensor {name!r} must have dtype, shape and data_offsets")
    dtype, shape = value["dtype"], value["shape"]
    require(dtype in DTYPES, f"dtype (={dtype!r}) of tensor {name!r} must be one of {', '.join(DTYPES)}")
    # Extents beside a 0 cost no bytes, but torch multiplies them all the same.
    small = len(shape) <= 16 and math.prod(extent for extent in shape if extent) <= 1 << 48
    require(small, f"the shape of tensor {name!r} must be at most 16 extents and 2^48 places")
    return Entry(DTYPES[dtype], tuple(shape))


def parse_json(raw: bytes | str, what: str) -> Any:
    """JSON as the standard has it: no key twice, no NaN, no numbers beyond floats."""
    try:
        return json.loads(raw, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is not valid JSON ({type(error).__name__}: {str(error)[:80]})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a number of JSON, or too large")
    return number
