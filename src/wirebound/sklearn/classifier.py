"""``DeepRClassifier``: softmax and cross-entropy for classes, sigmoid and binary cross-entropy for several labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from wirebound.sklearn.base import DeepREstimator, as_tensor
from wirebound.sklearn.class_weight import class_factors
from wirebound.sklearn.compat import validate
from wirebound.sklearn.examples import Examples, kept_rows


class DeepRClassifier(ClassifierMixin, DeepREstimator):  # type: ignore[misc]
    __doc__ = (
        "Classifier by a network with a strict budget of connections, trained by deep rewiring.\n"
        + (DeepREstimator.__doc__ or "")
        .partition("\n")[2]
        .replace(
            "    engine :",
            '    class_weight : None, ``"balanced"`` (classes count the same, however many rows they have), or a dict of class\n'
            "        to weight; for several labels that of 0 and 1 in each, or a list with one entry for each label.\n"
            "    engine :",
        )
        + "    classes_ : the labels, in the order of the columns of ``predict_proba``.\n"
    )

    def __init__(
        self,
        hidden_layer_sizes: int | tuple[int, ...] = (64,),
        *,
        connectivity: float | None = None,
        budget: int | None = None,
        method: str = "deep-r",
        epochs: int | None = None,
        batch_size: int | None = None,
        optimizer: str = "adam",
        learning_rate: float = 0.01,
        schedule: str = "cosine",
        final_lr: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        l1: float = 0.1,
        temperature: float = 0.0,
        rewire_every: int = 1,
        newborns: str = "share",
        scope: str = "layer",
        allocation: str = "equal",
        activation: str = "relu",
        bias: bool = True,
        init: str = "sparse-fan-in",
        standardize: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-4,
        class_weight: Any = None,
        engine: str = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(
            hidden_layer_sizes,
            connectivity=connectivity,
            budget=budget,
            method=method,
            epochs=epochs,
            batch_size=batch_size,
            optimizer=optimizer,
            learning_rate=learning_rate,
            schedule=schedule,
            final_lr=final_lr,
            momentum=momentum,
            weight_decay=weight_decay,
            l1=l1,
            temperature=temperature,
            rewire_every=rewire_every,
            newborns=newborns,
            scope=scope,
            allocation=allocation,
            activation=activation,
            bias=bias,
            init=init,
            standardize=standardize,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            engine=engine,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DeepRClassifier:
        """Train a new network.

        ``y`` holds one class for each row, or 0 and 1 for each row and label. ``sample_weight``: how much each row
        counts; one of weight 0 is as if it were not there.
        """
        X, y, weights = kept_rows(*self._checked(X, y, reset=True), sample_weight)
        self._several_labels = y.ndim == 2
        self.classes_ = np.arange(y.shape[1]) if self._several_labels else np.unique(y)
        examples = self._examples(X, y, weights)
        self._fit(examples, len(self.classes_), None if self._several_labels else examples.y)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> DeepRClassifier:
        """One more pass over these examples, with a constant learning rate.

        ``classes``: all labels that will ever come; needed in the first call, if ``fit`` was not called before, unless
        each row has several labels. ``sample_weight``: how much each row counts, beside the others of this call.
        """
        first = not self.__sklearn_is_fitted__()
        X, y, weights = kept_rows(*self._checked(X, y, reset=first), sample_weight)
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight (={self.class_weight!r}) cannot be used in partial_fit, which does not know how many rows "
                "of each class will come: give the weights as a dict"
            )
        if first:
            self._several_labels = y.ndim == 2
            if classes is None and not self._several_labels:
                raise ValueError("classes must be given in the first call of partial_fit")
            self.classes_ = np.arange(y.shape[1]) if self._several_labels else np.unique(column_or_1d(classes))
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes (={classes}) must be those of the first call (={self.classes_})")
        self._fit_more(self._examples(X, y, weights), len(self.classes_))
        return self

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate(self, X, y, reset=reset, dtype=np.float64, multi_output=True)
        if issparse(y):
            y = y.toarray()
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if y.ndim == 2 and not np.isin(y, (0, 1)).all():
            other = np.setdiff1d(y, (0, 1))[:5]
            raise ValueError(f"y of shape {y.shape} must hold 0 and 1, one column for each label, not {other}")
        return X, y

    def _examples(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Examples:
        """The rows with classes as numbers."""
        if self._several_labels != (y.ndim == 2) or (y.ndim == 2 and y.shape[1] != len(self.classes_)):
            wanted = f"[rows, {len(self.classes_)}]" if self._several_labels else "[rows]"
            raise ValueError(f"y of shape {y.shape} must have shape {wanted}, as in the first call")
        if self._several_labels:
            codes, classes = y.astype(np.int64), [0, 1]
        else:
            unknown = np.setdiff1d(y, self.classes_)
            if unknown.size:
                raise ValueError(f"y holds {unknown[:5]}, which must be among classes (={self.classes_})")
            codes, classes = np.searchsorted(self.classes_, y).astype(np.int64), self.classes_.tolist()
        return Examples(X, codes, weights, class_factors(self.class_weight, codes, classes, weights))

    @property
    def _loss(self) -> str:
        return "binary-cross-entropy" if self._several_labels else "cross-entropy"

    def _targets(self, examples: Examples, *, new: bool) -> Tensor:
        return as_tensor(examples.y) if self._several_labels else torch.from_numpy(examples.y)

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
        check_is_fitted(self)
        chosen = self._chosen(self._outputs(X))
        return chosen if self._several_labels else self.classes_[chosen]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        return {"multilabel": True}  # before scikit-learn 1.6
