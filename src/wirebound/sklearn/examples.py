"""``Examples``: what an estimator learns from, and how much each row counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import _check_sample_weight


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
        raise ValueError(f"early_stopping cannot hold out validation_fraction (={fraction}) of the rows: {error}") from None
    if len(held) < 2:
        raise ValueError(
            f"early_stopping must hold out at least 2 rows, validation_fraction (={fraction}) of {len(rows)} is "
            f"{len(held)}: give a larger fraction or more rows"
        )
    return examples.rows(train), examples.rows(held)
