"""speechocean762 as features: read English, each 10 ms labelled with its phone by forced alignment. One .npz file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from . import sources
from .content import check, read_file
from .kind import Route
from .phones_file import parse_phones
from .sequences import SequenceDataset
from .sources import Source

SUBFOLDERS = ("speech",)

_UNPACKED_LIMIT = 64_000_000


def source() -> Source:
    return sources.SPEECH


def missing(folder: Path) -> list[str]:
    return [file.name for file in source().files if not os.path.isfile(folder / file.name)]


def read(folder: Path, found: str) -> SequenceDataset:
    (file,) = source().files
    path = folder / file.name
    content = read_file(path, file.size)
    check(content, file, str(path))
    return parse_phones(content, "speech", str(path), found, _UNPACKED_LIMIT)


def routes(work: Path) -> Iterable[Route]:
    return ()
