"""``DeepRClassifier``: softmax and cross-entropy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from wirebound.sklearn.base import DeepREstimator, as_tensor
from wirebound.sklearn.compat import validate


class DeepRClassifier(ClassifierMixin, DeepREstimator):  # type: ignore[misc]
    __doc__ = (
        "Classifier by a network with a strict budget of connections, trained by deep rewiring.\n"
        + (DeepREstimator.__doc__ or "").partition("\n")[2]
        + "    classes_ : the labels, in the order of the columns of ``predict_proba``.\n"
    )

    def fit(self, X: Any, y: Any) -> DeepRClassifier:
        """Train a new network."""
        X, y = self._checked(X, y, reset=True)
        self.classes_ = np.unique(y)
        labels = np.searchsorted(self.classes_, y)
        x = as_tensor(self._scaled(X, new=True, more=False))
        self._start(len(x), len(self.classes_))
        self._learn(x, torch.from_numpy(labels.astype(np.int64)), self._settings.epochs, constant=False)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> DeepRClassifier:
        """One more pass over these examples, with a constant learning rate.

        ``classes``: all labels that will ever come; needed in the first call, if ``fit`` was not called before.
        """
        first = not hasattr(self, "model_")
        X, y = self._checked(X, y, reset=first)
        if first:
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit")
            self.classes_ = np.unique(column_or_1d(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes (={classes}) must be those of the first call (={self.classes_})")
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(f"y holds {unknown[:5]}, which must be among classes (={self.classes_})")
        labels = np.searchsorted(self.classes_, y)
        x = as_tensor(self._scaled(X, new=first, more=True))
        if first:
            self._start(len(x), len(self.classes_))
        self._learn(x, torch.from_numpy(labels.astype(np.int64)), 1, constant=True)
        return self

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate(self, X, y, reset=reset, dtype=np.float64)
        check_classification_targets(y)
        return X, y

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, [examples, classes]."""
        return softmax(self._outputs(X), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        check_is_fitted(self)
        return self.classes_[self._outputs(X).argmax(axis=1)]
