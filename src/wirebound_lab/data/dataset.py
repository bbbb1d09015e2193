"""A data set in memory, and how a validation part is split off."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .content import DataError

if TYPE_CHECKING:
    from torch import Tensor


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The array as a tensor, in the same memory."""
    import torch  # here: the command asks for the names of the data sets where it needs no torch

    return torch.from_numpy(array)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images as stored (uint8), with their labels.

    ``train_x`` and ``test_x`` are [N, C, H, W], or [N, H, W] for grey images; ``shape`` is the shape of one of them.
    ``maximum`` is the pixel value that means 1.0, ``source`` says where the data was found. Images stay uint8, a quarter
    of float32: convert a batch at a time with :meth:`to_inputs`, or a whole part with :meth:`inputs`.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    shape: tuple[int, ...]
    source: str
    maximum: int = 255

    @property
    def features(self) -> int:
        """How many numbers one flattened image has."""
        return math.prod(self.shape)

    def to_inputs(self, images: Tensor, flatten: bool = False) -> Tensor:
        """Some images as float32 in [0, 1]: [N, features] if ``flatten``, else [N, C, H, W] with C = 1 for grey."""
        scaled = images.float().div_(self.maximum)
        if flatten:
            return scaled.reshape(len(images), self.features)
        return scaled.unsqueeze(1) if len(self.shape) == 2 else scaled

    def inputs(self, part: Literal["train", "test"] = "train", flatten: bool = False) -> Tensor:
        """All images of one part as float32 in [0, 1], as :meth:`to_inputs` gives them."""
        if part not in ("train", "test"):
            raise DataError(f"part (={part!r}) must be 'train' or 'test'")
        return self.to_inputs(self.train_x if part == "train" else self.test_x, flatten)

    def __repr__(self) -> str:
        counts = f"train={len(self.train_y)}, test={len(self.test_y)}"  # the generated one would print the pixels
        return f"Dataset({self.name!r}, {counts}, shape={self.shape}, classes={self.classes}, source={self.source!r})"


def split_validation(dataset: Dataset, count: int, seed: int) -> Dataset:
    """The data set to pick settings on: ``count`` training examples, drawn by ``seed``, become the test part.

    The real test part is not in the result, so nothing can be picked on it by mistake. Both parts keep the order of
    the training set. The stream of NumPy's ``RandomState`` is frozen: a seed gives the same split with every version.
    """
    total = len(dataset.train_y)
    if not 1 <= count < total:
        raise DataError(f"count (={count}) must be in [1, {total - 1}], {dataset.name} has {total} training examples")
    if not 0 <= seed < 2**32:
        raise DataError(f"seed (={seed}) must be in [0, 2**32)")
    held_out = np.zeros(total, dtype=bool)
    held_out[np.random.RandomState(seed).permutation(total)[:count]] = True
    chosen = as_tensor(held_out)
    source = f"{dataset.source}; test part: {count} of the {total} training examples, seed {seed}"
    (train_x, train_y), (test_x, test_y) = ((dataset.train_x[at], dataset.train_y[at]) for at in (~chosen, chosen))
    return replace(dataset, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y, source=source)
