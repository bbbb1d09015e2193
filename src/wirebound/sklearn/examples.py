"""``Examples``: what an estimator learns from, and how much each row counts, also by its class."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn.utils.validation as validation
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import _check_sample_weight


def validate(estimator: Any, X: Any, **checks: Any) -> Any:
    """X, or (X, y), checked as scikit-learn checks them; notes ``n_features_in_`` if ``reset``."""
    if checks.get("y", X) is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    if hasattr(validation, "validate_data"):  # since 1.6
        return validation.validate_data(estimator, X, **checks)
    return estimator._validate_data(X, **checks)


@dataclass(frozen=True)
class Examples:
    """Rows to learn from.

    ``y`` holds class numbers [rows], labels 0 and 1 [rows, labels], or targets [rows, targets]. ``sample_weight`` says
    how often a row counts, everywhere; ``factors``, [rows] or [rows, labels], how much it counts in the loss beside
    that (the weights of classes). None: all the same.
    """

    X: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None = None
    factors: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.X)

    def rows(self, chosen: np.ndarray) -> Examples:
        parts = (None if part is None else part[chosen] for part in (self.sample_weight, self.factors))
        return Examples(self.X[chosen], self.y[chosen], *parts)

    def loss_weights(self) -> np.ndarray | None:
        """What each row (or each label of it) counts in the loss, with mean 1; None if all the same."""
        weights, factors = self.sample_weight, self.factors
        if weights is None or factors is None:
            both = factors if weights is None else weights
        else:
            both = weights.reshape(-1, *[1] * (factors.ndim - 1)) * factors
        if both is None or both.max() == both.min() > 0:
            return None
        if not both.max() > 0:
            raise ValueError("sample_weight and class_weight must leave a weight that is not zero")
        both = both / both.max()
        return both / both.mean()


def kept_rows(X: np.ndarray, y: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """X, y and checked weights, without the rows whose weight is 0: they are as if they had never been there."""
    if sample_weight is None:
        return X, y, None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weights < 0).any():
        raise ValueError(f"sample_weight must be >= 0, the least is {weights.min():g}")
    if not weights.any():
        raise ValueError("sample_weight must hold at least one weight that is not zero")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        raise ValueError("sample_weight must have a finite sum")
    kept = weights > 0
    if not kept.all():
        X, y, weights = X[kept], y[kept], weights[kept]
    return X, y, None if (weights == 1).all() else weights


def held_out(examples: Examples, fraction: float, classes: np.ndarray | None, seed: int) -> tuple[Examples, Examples]:
    """(rows to train on, rows to validate with), the second a ``fraction`` of all, with ``classes`` in equal shares."""
    rows = np.arange(len(examples))
    try:
        train, held = train_test_split(rows, test_size=fraction, random_state=seed % (1 << 32), stratify=classes)
    except ValueError as error:
        share = f"validation_fraction (={fraction})"
        raise ValueError(f"early_stopping cannot hold out {share} of the rows: {error}") from None
    if len(held) < 2:
        found = f"validation_fraction (={fraction}) of {len(rows)} is {len(held)}"
        raise ValueError(f"early_stopping must hold out at least 2 rows, {found}: give a larger fraction or more rows")
    return examples.rows(train), examples.rows(held)


def class_factors(class_weight: Any, codes: np.ndarray, classes: list[Any], weights: np.ndarray | None) -> Any:
    """The weight of each row's class, [rows], or of each label of it, [rows, labels]; None where all count the same.

    ``codes`` are numbers of ``classes``, [rows] or [rows, labels]; ``weights``, how often each row counts, are for
    ``"balanced"``. For several labels ``class_weight`` may be a list with one for each.
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
