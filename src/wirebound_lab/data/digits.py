"""scikit-learn's digits: 1,797 real handwritten digits of 8x8, here without any download.

scikit-learn gives no split. Ours is written down: 1,437 for training, 360 for testing, every class in
proportion, drawn with the seed below.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from . import sources
from .content import check
from .dataset import Dataset

SPLIT_SEED = 2018
TEST_COUNT = 360


def read() -> Dataset:
    from sklearn.datasets import load_digits  # here, because it takes a second that most runs need not spend

    bunch = load_digits()
    images = bunch.images.astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    check(images.tobytes() + labels.astype(np.uint8).tobytes(), sources.DIGITS, "scikit-learn's digits")
    test = test_positions(labels)
    train = np.setdiff1d(np.arange(len(labels)), test)
    return Dataset(
        name="digits",
        train_x=torch.from_numpy(images[train]),
        train_y=torch.from_numpy(labels[train]),
        test_x=torch.from_numpy(images[test]),
        test_y=torch.from_numpy(labels[test]),
        classes=10,
        shape=(8, 8),
        source="scikit-learn",
        maximum=16,
    )


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
