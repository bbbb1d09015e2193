"""``class_weight``: how much the rows of each class count in the loss."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np


def class_factors(class_weight: Any, codes: np.ndarray, classes: list[Any], weights: np.ndarray | None) -> Any:
    """The weight of each row's class, [rows], or of each label of it, [rows, labels]; None where all count the same.

    Args:
        class_weight: None, ``"balanced"``, or a dict of class to weight; for several labels also a list of these.
        codes: class of each row as a number from 0, [rows] or [rows, labels].
        classes: the class that each number stands for.
        weights: how often each row counts, for ``"balanced"``.
    """
    if class_weight is None:
        return None
    if codes.ndim == 1:
        return _of_classes(class_weight, codes, classes, weights)[codes]
    labels = codes.shape[1]
    each = class_weight if isinstance(class_weight, list) else [class_weight] * labels
    if len(each) != labels:
        raise ValueError(f"class_weight (={class_weight!r}) must have one entry for each of {labels} labels")
    return np.stack([_of_classes(each[i], codes[:, i], classes, weights)[codes[:, i]] for i in range(labels)], axis=1)


def _of_classes(class_weight: Any, codes: np.ndarray, classes: list[Any], weights: np.ndarray | None) -> np.ndarray:
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(codes, weights, len(classes))
        present = counts > 0
        return np.divide(counts.sum() / present.sum(), counts, out=np.ones(len(classes)), where=present)
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight (={class_weight!r}) must be None, 'balanced', or a dict of class to weight")
    missing = [name for name in classes if name not in class_weight]
    unknown = [name for name in class_weight if name not in classes]
    if missing and unknown:  # else a class that happens not to be in this part of the data
        raise ValueError(f"class_weight names {unknown}, which are not among the classes, and leaves out {missing}")
    for name, value in class_weight.items():
        if not (isinstance(value, numbers.Real) and math.isfinite(value) and float(value) >= 0):
            raise ValueError(f"class_weight of {name!r} (={value!r}) must be a finite number >= 0")
    return np.array([float(class_weight.get(name, 1.0)) for name in classes])
