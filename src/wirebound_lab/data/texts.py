"""Texts with one class each, and how a validation part is split off."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .content import DataError


@dataclass(frozen=True, eq=False)
class TextDataset:
    """Texts and the numbers of their classes.

    ``groups`` name what texts have in common beside their class (a source package, a module): texts of one group are all
    in the training part or all in the test part.
    """

    name: str
    train_texts: list[str]
    train_y: NDArray[np.int64]
    test_texts: list[str]
    test_y: NDArray[np.int64]
    class_names: tuple[str, ...]
    train_groups: list[str]
    source: str

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def split_validation(self, share: float, seed: int = 0) -> TextDataset:
        """The data set to pick settings on: whole groups of the training part, about this share of them, become the test part."""
        if not 0 < share < 1:
            raise DataError(f"share (={share}) must be in (0, 1)")
        held = np.array([in_share(f"{seed} {group}", share) for group in self.train_groups])
        if not held.any() or held.all():
            raise DataError(f"share (={share}) must leave texts in both parts, {self.name} has {len(held)} training texts")
        rows = np.arange(len(held))
        texts, groups = self.train_texts, self.train_groups
        return replace(
            self,
            train_texts=[texts[i] for i in rows[~held]], train_y=self.train_y[~held],
            test_texts=[texts[i] for i in rows[held]], test_y=self.train_y[held],
            train_groups=[groups[i] for i in rows[~held]],
            source=f"{self.source}; test part: {int(held.sum())} of the {len(held)} training texts, seed {seed}",
        )  # fmt: skip

    def __repr__(self) -> str:
        counts = f"train={len(self.train_texts)}, test={len(self.test_texts)}"
        return f"TextDataset({self.name!r}, {counts}, classes={self.classes}, source={self.source!r})"


@dataclass(frozen=True)
class Labelled:
    """One text, before the parts are split."""

    text: str
    label: str
    group: str


def in_share(name: str, share: float) -> bool:
    """Whether ``name`` is among about this share of all names; the same on every machine."""
    drawn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return drawn < share * 2**64


def split_by_group(name: str, texts: Iterable[Labelled], test_share: float, fewest: int, source: str) -> TextDataset:
    """Equal texts once; classes with fewer than ``fewest`` texts dropped; groups shared out to the parts by their names."""
    once: dict[str, Labelled] = {}
    for one in texts:
        once.setdefault(one.text, one)
    labels, counts = np.unique([one.label for one in once.values()], return_counts=True)
    class_names = tuple(str(label) for label in labels[counts >= fewest])
    if len(class_names) < 2:
        raise DataError(f"{name}: must have at least 2 classes of {fewest} texts, has {len(class_names)} ({source})")
    numbers = {label: number for number, label in enumerate(class_names)}
    kept = [one for one in once.values() if one.label in numbers]
    parts: dict[bool, list[Labelled]] = {False: [], True: []}
    for one in kept:
        parts[in_share(one.group, test_share)].append(one)
    train, test = parts[False], parts[True]
    train_y, test_y = (np.array([numbers[one.label] for one in part], dtype=np.int64) for part in (train, test))
    texts_of = [[one.text for one in part] for part in (train, test)]
    return TextDataset(name, texts_of[0], train_y, texts_of[1], test_y, class_names, [one.group for one in train], source)
