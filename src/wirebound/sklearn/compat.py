"""What changed between scikit-learn 1.3 and now."""

from __future__ import annotations

from typing import Any

import sklearn.utils.validation as validation

_NO_Y = "no_validation"  # scikit-learn's own word for it; None would be a missing y


def validate(estimator: Any, X: Any, y: Any = _NO_Y, *, reset: bool, **checks: Any) -> Any:
    """X, or (X, y), checked as scikit-learn checks them; notes ``n_features_in_`` if ``reset``."""
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    given = {} if isinstance(y, str) and y == _NO_Y else {"y": y}
    if hasattr(validation, "validate_data"):  # since 1.6
        return validation.validate_data(estimator, X, reset=reset, **given, **checks)
    return estimator._validate_data(X, reset=reset, **given, **checks)
