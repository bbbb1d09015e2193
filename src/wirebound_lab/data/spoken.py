"""A corpus for those who have neither TIMIT nor ``speech``: sentences spoken by eSpeak NG, made on this machine.

Synthetic voices are far easier than people: it is for trying out, not for figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from . import sources
from .content import read_file
from .errors import DataError
from .kind import Route
from .phones_file import parse_phones
from .sequences import SequenceDataset
from .sources import Source
from .spoken_recipe import identity

SUBFOLDERS = ("spoken",)

_LIMIT = 20_000_000  # bytes of the file; it has about 6 million
_UNPACKED_LIMIT = 40_000_000
_SECONDS = 900  # it takes about half a minute


def file_name() -> str:
    return f"spoken-{identity()}.npz"


def source() -> Source:
    return replace(sources.SPOKEN, made=(file_name(),))


def missing(folder: Path) -> list[str]:
    return [] if os.path.isfile(folder / file_name()) else [file_name()]


def read(folder: Path, found: str) -> SequenceDataset:
    path = folder / file_name()
    return parse_phones(read_file(path, _LIMIT), "spoken", str(path), found, _UNPACKED_LIMIT)


def routes(work: Path) -> Iterator[Route]:
    yield "eSpeak NG", partial(_make, work / file_name())


def _make(target: Path) -> None:
    command = [sys.executable, "-m", f"{__package__}.spoken_make", str(target)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise DataError(f"eSpeak NG: must end within {_SECONDS} s") from None
    if done.returncode != 0:
        raise DataError(f"eSpeak NG: exit code {done.returncode} ({done.stderr.strip()[-500:] or 'no message'})")
