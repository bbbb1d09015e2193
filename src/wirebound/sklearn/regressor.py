"""``DeepRRegressor``: the mean square of one target or several."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from wirebound.export.network import Network
from wirebound.sklearn.base import DeepREstimator, as_tensor, documented, with_weights
from wirebound.sklearn.examples import Examples, kept_rows, validate
from wirebound.sklearn.training import Loss


class DeepRRegressor(RegressorMixin, DeepREstimator):  # type: ignore[misc]
    __doc__ = documented("Regressor by a network with a strict budget of connections, trained by deep rewiring.")

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DeepRRegressor:
        """Train a new network.

        ``y`` holds one target for each row, or several. ``sample_weight``: how much each row counts; one of weight 0 is
        as if it were not there.
        """
        examples = self._examples(X, y, sample_weight, reset=True)
        self._fit(examples, examples.y.shape[1])
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> DeepRRegressor:
        """One more pass over these examples, with a constant learning rate. Targets keep the scale of the first call.

        ``sample_weight``: how much each row counts, beside the others of this call.
        """
        first = not self.__sklearn_is_fitted__()
        examples = self._examples(X, y, sample_weight, reset=first)
        targets = examples.y.shape[1]
        if not first and targets != self._target_scaler.n_features_in_:
            raise ValueError(f"y has {targets} targets, must have {self._target_scaler.n_features_in_}")
        self._fit_more(examples, targets)
        return self

    def _examples(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Examples:
        X, y = validate(self, X, y=y, reset=reset, dtype=np.float64, y_numeric=True, multi_output=True)
        self._one_target = y.ndim == 1
        return Examples(*kept_rows(X, y.reshape(len(y), -1).astype(np.float64), sample_weight))

    @property
    def _loss(self) -> Loss:
        return F.mse_loss

    def _targets(self, examples: Examples, *, new: bool) -> Tensor:
        if new:
            self._target_scaler = StandardScaler().fit(examples.y, sample_weight=examples.sample_weight)
        return as_tensor(self._target_scaler.transform(examples.y))

    def _score_outputs(self, outputs: np.ndarray, examples: Examples) -> float:
        found = self._target_scaler.inverse_transform(outputs)
        return float(r2_score(examples.y, found, sample_weight=examples.sample_weight))

    def predict(self, X: Any) -> np.ndarray:
        """The targets, [examples] or [examples, targets] as in ``fit``."""
        scaled = self._outputs(X)
        y = self._target_scaler.inverse_transform(scaled)
        return y[:, 0] if self._one_target else y

    def to_network(self) -> Network:
        network, scaler = super().to_network(), self._target_scaler
        last = network.weighted[-1]
        bias = (0 if last.bias is None else last.bias) * scaler.scale_ + scaler.mean_
        return Network((*network.layers[:-1], with_weights(last, last.weights * scaler.scale_[last.rows], bias)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        return {"multioutput": True}  # before scikit-learn 1.6
