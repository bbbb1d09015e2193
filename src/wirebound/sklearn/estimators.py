"""``DeepRClassifier`` and ``DeepRRegressor``: what their targets are, which loss they have, and what they predict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import issparse
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from wirebound.export.network import Network
from wirebound.sklearn.base import DeepREstimator
from wirebound.sklearn.checks import Examples, class_factors, kept_rows, validate
from wirebound.sklearn.inputs import as_tensor, how_to_check
from wirebound.sklearn.training import Loss

_PARAMETERS = (DeepREstimator.__doc__ or "").partition("\n")[2]


@dataclass(eq=False, repr=False, kw_only=True)
class DeepRClassifier(ClassifierMixin, DeepREstimator):  # type: ignore[misc]
    __doc__ = f"Classifier by a network with a strict budget of connections, trained by deep rewiring.\n{_PARAMETERS}"

    class_weight: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DeepRClassifier:
        """Train a new network; ``y`` holds one class for each row, or 0 and 1 for each row and label.

        ``sample_weight``: how much each row counts; one of weight 0 is as if it were not there.
        """
        examples = self._examples(X, y, sample_weight, new=True)
        self._fit(examples, len(self.classes_), None if self._several_labels else examples.y)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> DeepRClassifier:
        """One more pass over these examples, with a constant learning rate.

        ``classes``: all labels that will ever come; needed in the first call, if ``fit`` was not called before, unless
        each row has several labels. ``sample_weight``: how much each row counts, beside the others of this call.
        """
        if isinstance(self.class_weight, str):
            why = "which does not know how many rows of each class will come: give the weights as a dict"
            raise ValueError(f"class_weight (={self.class_weight!r}) cannot be used in partial_fit, {why}")
        new = not self.__sklearn_is_fitted__()
        examples = self._examples(X, y, sample_weight, new=new, classes=classes)
        if new and classes is None and not self._several_labels:
            raise ValueError("classes must be given in the first call of partial_fit")
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes (={classes}) must be those of the first call (={self.classes_})")
        self._fit_more(examples, len(self.classes_))
        return self

    def _examples(self, X: Any, y: Any, sample_weight: Any, *, new: bool, classes: Any = None) -> Examples:
        """The rows with classes as numbers; if ``new``, the classes are those of ``classes`` or else of ``y``."""
        X, y = validate(self, X, y=y, reset=new, multi_output=True, **how_to_check(X))
        y = y.toarray() if issparse(y) else y
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        several = y.ndim == 2
        if several and (other := np.setdiff1d(y, (0, 1))).size:
            raise ValueError(f"y of shape {y.shape} must hold 0 and 1, one column for each label, not {other[:5]}")
        X, y, weights = kept_rows(X, y, sample_weight)
        if new:
            given = y if classes is None else column_or_1d(classes)
            self._several_labels, self.classes_ = several, np.arange(y.shape[1]) if several else np.unique(given)
        if self._several_labels != several or (several and y.shape[1] != len(self.classes_)):
            wanted = f"[rows, {len(self.classes_)}]" if self._several_labels else "[rows]"
            raise ValueError(f"y of shape {y.shape} must have shape {wanted}, as in the first call")
        if several:
            codes, names = y.astype(np.int64), [0, 1]
        else:
            if (unknown := np.setdiff1d(y, self.classes_)).size:
                raise ValueError(f"y holds {unknown[:5]}, which must be among classes (={self.classes_})")
            codes, names = np.searchsorted(self.classes_, y).astype(np.int64), self.classes_.tolist()
        return Examples(X, codes, weights, class_factors(self.class_weight, codes, names, weights))

    def _loss_and_targets(self, examples: Examples, *, new: bool) -> tuple[Loss, Tensor]:
        if self._several_labels:
            return F.binary_cross_entropy_with_logits, as_tensor(examples.y)
        return F.cross_entropy, torch.from_numpy(examples.y)

    def _chosen(self, outputs: np.ndarray) -> np.ndarray:
        """Numbers of classes, or 0 and 1 for each label."""
        return (outputs > 0).astype(np.int64) if self._several_labels else outputs.argmax(axis=1)

    def _score_outputs(self, outputs: np.ndarray, examples: Examples) -> float:
        return float(accuracy_score(examples.y, self._chosen(outputs), sample_weight=examples.sample_weight))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, [examples, classes], or of each label, [examples, labels]."""
        outputs = self._outputs(X)
        return expit(outputs) if self._several_labels else softmax(outputs, axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class, or 1 for each label that is more probable than not, and 0."""
        chosen = self._chosen(self._outputs(X))
        return chosen if self._several_labels else self.classes_[chosen]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        return {"multilabel": True, "sparse": True}  # before scikit-learn 1.6


class DeepRRegressor(RegressorMixin, DeepREstimator):  # type: ignore[misc]
    __doc__ = f"Regressor by a network with a strict budget of connections, trained by deep rewiring.\n{_PARAMETERS}"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DeepRRegressor:
        """Train a new network; ``y`` holds one target for each row, or several.

        ``sample_weight``: how much each row counts; one of weight 0 is as if it were not there.
        """
        examples = self._examples(X, y, sample_weight, new=True)
        self._fit(examples, examples.y.shape[1])
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> DeepRRegressor:
        """One more pass over these examples, with a constant learning rate. Targets keep the scale of the first call.

        ``sample_weight``: how much each row counts, beside the others of this call.
        """
        first = not self.__sklearn_is_fitted__()
        examples = self._examples(X, y, sample_weight, new=first)
        targets = examples.y.shape[1]
        if not first and targets != self._target_scaler.n_features_in_:
            raise ValueError(f"y has {targets} targets, must have {self._target_scaler.n_features_in_}")
        self._fit_more(examples, targets)
        return self

    def _examples(self, X: Any, y: Any, sample_weight: Any, *, new: bool) -> Examples:
        X, y = validate(self, X, y=y, reset=new, y_numeric=True, multi_output=True, **how_to_check(X))
        self._one_target = y.ndim == 1
        return Examples(*kept_rows(X, y.reshape(len(y), -1).astype(np.float64), sample_weight))

    def _loss_and_targets(self, examples: Examples, *, new: bool) -> tuple[Loss, Tensor]:
        if new:
            self._target_scaler = StandardScaler().fit(examples.y, sample_weight=examples.sample_weight)
        return F.mse_loss, as_tensor(self._target_scaler.transform(examples.y))

    def _score_outputs(self, outputs: np.ndarray, examples: Examples) -> float:
        found = self._target_scaler.inverse_transform(outputs)
        return float(r2_score(examples.y, found, sample_weight=examples.sample_weight))

    def predict(self, X: Any) -> np.ndarray:
        """The targets, [examples] or [examples, targets] as in ``fit``."""
        outputs = self._outputs(X)  # first: it says so if there is nothing fitted
        y = self._target_scaler.inverse_transform(outputs)
        return y[:, 0] if self._one_target else y

    def to_network(self) -> Network:
        network, scaler = super().to_network(), self._target_scaler
        last = network.weighted[-1]
        bias = (0 if last.bias is None else last.bias) * scaler.scale_ + scaler.mean_
        weights = (last.weights * scaler.scale_[last.rows]).astype(np.float32)
        return Network((*network.layers[:-1], replace(last, weights=weights, bias=np.asarray(bias, dtype=np.float32))))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        return {"multioutput": True, "sparse": True}  # before scikit-learn 1.6
