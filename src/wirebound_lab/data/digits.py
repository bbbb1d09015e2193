"""scikit-learn's digits: 1,797 real handwritten digits of 8x8, here without any download.

scikit-learn gives no split. Ours is written down: 1,437 for training, 360 for testing, every class in
proportion, drawn with the seed below. The images are the test part of "Optical Recognition of Handwritten
Digits" (E. Alpaydin, C. Kaynak, 1998; UCI repository, CC BY 4.0).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .content import File, check
from .dataset import Dataset, as_tensor
from .kind import DataKind

SPLIT_SEED = 2018
TEST_COUNT = 360
# The images (uint8, 0..16), then the labels (uint8).
_CONTENT = File("digits", 1797 * 65, "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826")


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
        parts = (as_tensor(part) for at in (train, test) for part in (images[at], labels[at]))
        train_x, train_y, test_x, test_y = parts
        return Dataset("digits", train_x, train_y, test_x, test_y, 10, (8, 8), found, maximum=16)


def test_positions(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions that form the test part, sorted.

    Each class gives its share of TEST_COUNT, rounded so that the sum is exact (largest remainders first).
    ``RandomState`` has a frozen stream, so the split never moves with a version of NumPy or scikit-learn.
    """
    counts = np.bincount(labels)
    shares = counts * TEST_COUNT / len(labels)
    take = np.floor(shares).astype(np.int64)
    by_remainder = np.argsort(take - shares, kind="stable")
    take[by_remainder[: TEST_COUNT - take.sum()]] += 1
    random = np.random.RandomState(SPLIT_SEED)
    chosen = [random.permutation(np.flatnonzero(labels == label))[:count] for label, count in enumerate(take)]
    return np.sort(np.concatenate(chosen))
