"""``DeepRRegressor``: the mean square of one target or several."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler

from wirebound.export.network import Network
from wirebound.sklearn.base import DeepREstimator, _changed, as_tensor
from wirebound.sklearn.compat import validate


class DeepRRegressor(RegressorMixin, DeepREstimator):  # type: ignore[misc]
    __doc__ = (
        "Regressor by a network with a strict budget of connections, trained by deep rewiring.\n"
        + (DeepREstimator.__doc__ or "").partition("\n")[2]
    )

    def fit(self, X: Any, y: Any) -> DeepRRegressor:
        """Train a new network."""
        X, targets = self._checked(X, y, reset=True)
        self._target_scaler = StandardScaler().fit(targets)
        x = as_tensor(self._scaled(X, new=True, more=False))
        self._start(len(x), targets.shape[1])
        self._learn(x, as_tensor(self._target_scaler.transform(targets)), self._settings.epochs, constant=False)
        return self

    def partial_fit(self, X: Any, y: Any) -> DeepRRegressor:
        """One more pass over these examples, with a constant learning rate. Targets keep the scale of the first call."""
        first = not hasattr(self, "model_")
        X, targets = self._checked(X, y, reset=first)
        if first:
            self._target_scaler = StandardScaler().fit(targets)
        elif targets.shape[1] != self._target_scaler.n_features_in_:
            raise ValueError(f"y has {targets.shape[1]} targets, must have {self._target_scaler.n_features_in_}")
        x = as_tensor(self._scaled(X, new=first, more=True))
        if first:
            self._start(len(x), targets.shape[1])
        self._learn(x, as_tensor(self._target_scaler.transform(targets)), 1, constant=True)
        return self

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate(self, X, y, reset=reset, dtype=np.float64, y_numeric=True, multi_output=True)
        self._one_target = y.ndim == 1
        return X, y.reshape(len(y), -1).astype(np.float64)

    def predict(self, X: Any) -> np.ndarray:
        """The targets, [examples] or [examples, targets] as in ``fit``."""
        scaled = self._outputs(X)
        y = self._target_scaler.inverse_transform(scaled)
        return y[:, 0] if self._one_target else y

    def to_network(self) -> Network:
        network = super().to_network()
        last, scaler = network.layers[-1], self._target_scaler
        bias = (0 if last.bias is None else last.bias) * scaler.scale_ + scaler.mean_
        return Network((*network.layers[:-1], _changed(last, last.weights * scaler.scale_[last.rows], bias)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        return {"multioutput": True}  # before scikit-learn 1.6
