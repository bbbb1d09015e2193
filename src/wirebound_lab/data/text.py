"""Text as bytes, from files that are on every machine: the source of Python's own standard library, or any folder.

Whole files are held out, so that no held-out line stands in a training file: which ones follows from a hash of their
names alone, the same on every machine and in every version.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .content import DataError
from .dataset import as_tensor

if TYPE_CHECKING:
    from torch import Tensor

PARTS = ("train", "validation", "test")
BYTES = 256
_HELD_OUT = 20  # one file in so many is for validation, and one for the test
# Not library code, or not of this library: packages that were installed, and tests, which many installations lack.
_NOT_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


@dataclass(frozen=True)
class TextDataset:
    """The bytes of each part (uint8), file after file with a zero byte between them."""

    name: str
    train: Tensor
    validation: Tensor
    test: Tensor
    files: dict[str, int]  # of each part
    sha256: str  # of all parts together

    def part(self, name: str) -> Tensor:
        if name not in PARTS:
            raise DataError(f"part (={name!r}) must be one of {', '.join(PARTS)}")
        found: Tensor = getattr(self, name)
        return found


def part_of(name: str) -> str:
    """The part that a file belongs to, by its name in the folder."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % _HELD_OUT
    return {0: "test", 1: "validation"}.get(number, "train")


def load_text(folder: Path | str | None = None) -> TextDataset:
    """The text files of a folder and all that is below it; without one, the ``.py`` files of the standard library."""
    root = Path(sysconfig.get_path("stdlib") if folder is None else folder)
    if not root.is_dir():
        raise DataError(f"text (={root}) must be a folder of text files")
    parts: dict[str, list[bytes]] = {part: [] for part in PARTS}
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in _files(root, folder is None)):
        content = path.read_bytes()
        if content and b"\0" not in content:  # else no text
            parts[part_of(name)].append(content + b"\0")
    for part, contents in parts.items():
        if not contents:
            raise DataError(f"text (={root}) has no file for {part}: it must have some dozens of text files")
    joined = {part: b"".join(contents) for part, contents in parts.items()}
    digest = hashlib.sha256(b"\0".join(joined[part] for part in PARTS)).hexdigest()
    tensors = {part: as_tensor(np.frombuffer(bytearray(text), dtype=np.uint8)) for part, text in joined.items()}
    files = {part: len(contents) for part, contents in parts.items()}
    return TextDataset("python" if folder is None else root.name, **tensors, files=files, sha256=digest)


def _files(root: Path, library: bool) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        if library:
            below[:] = [name for name in below if name not in _NOT_LIBRARY]  # nor walk through them
        yield from (Path(folder, name) for name in names if name.endswith(".py") or not library)
