"""Writing and reading such a file: in pieces, with its checksum, and never more memory than its tensors take."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import torch
from torch import Tensor

from wirebound.checkpoint.atomic import write_file
from wirebound.checkpoint.errors import CheckpointError
from wirebound.checkpoint.layout import (
    DIGEST,
    DOCUMENT,
    MAX_HEADER,
    METADATA,
    NAMES,
    Entry,
    content_hash,
    pack_header,
    parse_header,
    parse_json,
)

_PIECE = 1 << 20


def write_container(path: Path, tensors: Mapping[str, Tensor], document: dict[str, Any]) -> None:
    """Write tensors and document atomically; what ``path`` held before stays whole until the end."""
    contents: dict[str, memoryview] = {}
    header: dict[str, Any] = {METADATA: {"format": "pt", DOCUMENT: json.dumps(document, allow_nan=False)}}
    at = 0
    # The widest first: every tensor then starts at a multiple of its width.
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        tensor = tensors[name]
        if tensor.dtype not in NAMES or tensor.layout is not torch.strided:
            raise CheckpointError(f"tensor {name!r} ({tensor.dtype}, {tensor.layout}) cannot be kept")
        contents[name] = _bytes(tensor.detach().cpu().contiguous())
        size = contents[name].nbytes
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    digest = content_hash(header)
    for content in contents.values():
        digest.update(content)
    header[METADATA][DIGEST] = digest.hexdigest()
    packed = pack_header(header)
    if len(packed) > MAX_HEADER:
        raise CheckpointError(f"a checkpoint's header (={len(packed)} bytes) must be at most {MAX_HEADER} bytes")

    def write(stream: BinaryIO) -> None:
        stream.write(len(packed).to_bytes(8, "little"))
        stream.write(packed)
        for content in contents.values():
            for start in range(0, content.nbytes, _PIECE):
                stream.write(content[start : start + _PIECE])

    write_file(path, write)


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


class Container:
    """An open file whose header and checksum have been found right; tensors are read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: BinaryIO | None = None
        try:
            self._open()
        except CheckpointError as error:
            self.close()
            raise CheckpointError(f"{path} cannot be read: {error}") from None
        except OSError as error:
            self.close()
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error

    def _open(self) -> None:
        # Not blocking, so that a pipe with a file's name is an error and not a wait.
        descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        self._stream = os.fdopen(descriptor, "rb", buffering=0)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError("it is not a regular file")
        length = int.from_bytes(self._stream.read(8), "little")
        if status.st_size < 8 or length > status.st_size - 8:
            raise CheckpointError(f"its header does not fit in {status.st_size} bytes: it is cut off or no checkpoint")
        if length > MAX_HEADER:
            raise CheckpointError(f"its header (={length} bytes) must be at most {MAX_HEADER} bytes")
        self._data = 8 + length
        header, self.entries = parse_header(self._read(8, length), status.st_size - self._data)
        metadata = header[METADATA]
        self._check(content_hash(header), metadata[DIGEST], status.st_size - self._data)
        self.document = parse_json(metadata[DOCUMENT], "its document")

    def _check(self, digest: Any, promised: str, size: int) -> None:
        for start in range(0, size, _PIECE):
            digest.update(self._read(self._data + start, min(_PIECE, size - start)))
        if digest.hexdigest() != promised:
            raise CheckpointError("its content does not match its sha256: the file is damaged; use an earlier one")

    def _read(self, start: int, size: int) -> bytes:
        content = bytearray(size)
        self._fill(start, memoryview(content))
        return bytes(content)

    def _fill(self, start: int, target: memoryview) -> None:
        assert self._stream is not None
        self._stream.seek(start)
        done = 0
        while done < target.nbytes:
            count = self._stream.readinto(target[done:])  # type: ignore[attr-defined]
            if not count:
                raise CheckpointError("the file became shorter while it was read")
            done += count

    def tensor(self, name: str) -> Tensor:
        """A tensor of the file, in memory of its own."""
        entry: Entry | None = self.entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self.path} must hold tensor {name!r}")
        found = torch.empty(entry.shape, dtype=entry.dtype)
        if entry.end > entry.start:
            content = _bytes(found)
            self._fill(self._data + entry.start, content)
            if entry.dtype is torch.bool and max(bytes(content)) > 1:
                raise CheckpointError(f"tensor {name!r} of {self.path} must be 0s and 1s")
        return found

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Container:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
