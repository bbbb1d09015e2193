"""X as users give it and as the network sees it: dense tables, or SciPy's sparse matrices, which stay sparse throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from torch import Tensor

from wirebound.engine.rows import SparseRows

_TOO_LARGE = "X and y must be small enough for single precision (3.4e38), once they are scaled"


def how_to_check(X: Any) -> dict[str, Any]:
    """What scikit-learn is asked to make of X. Sparse rows may stay in single precision, which networks learn in."""
    return {"accept_sparse": "csr", "dtype": [np.float64, np.float32] if issparse(X) else np.float64}


def make_scaler(X: Any) -> Any:
    """Mean 0 and variance 1 of a dense table. Of sparse rows the largest magnitude is 1, so that zeros stay zeros."""
    return MaxAbsScaler() if issparse(X) else StandardScaler()


def fit_scaler(scaler: Any, X: Any, sample_weight: np.ndarray | None) -> None:
    """Take these rows into account too; the largest magnitude knows no weights, rows of weight 0 are gone already."""
    if isinstance(scaler, MaxAbsScaler):
        scaler.partial_fit(X)
    else:
        scaler.partial_fit(X.toarray() if issparse(X) else X, sample_weight=sample_weight)


def scaled(scaler: Any, X: Any) -> Any:
    """Inputs as the network sees them. What was learnt of a dense table is narrow enough for dense rows."""
    if scaler is None:
        return X
    centred = isinstance(scaler, StandardScaler)
    return scaler.transform(X.toarray() if centred and issparse(X) else X)


def as_inputs(X: Any) -> Tensor | SparseRows:
    """What an engine learns from, in single precision."""
    if not issparse(X):
        return as_tensor(X)
    rows = SparseRows.of(X)
    if not bool(torch.isfinite(rows.values).all()):
        raise ValueError(_TOO_LARGE)
    return rows


def as_tensor(x: np.ndarray) -> Tensor:
    """In single precision, which is what networks learn in."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(single).all():
        raise ValueError(_TOO_LARGE)
    return torch.from_numpy(single)
