"""scikit-learn's own checks of estimators: all of them, with one expected failure, on dense tables and on sparse rows."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from wirebound.sklearn import DeepRClassifier, DeepRRegressor


def _expected(estimator):
    """Training is in single precision, and weighted rows fall into other batches than repeated ones: ``test_weights.py``
    compares them up to rounding and on average. The check wants seven digits, as it does of scikit-learn's own networks."""
    reason = "sample_weight is not equivalent to repeating samples to seven digits, as with all training by batches"
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


@parametrize_with_checks([DeepRClassifier(), DeepRRegressor()], expected_failed_checks=_expected)
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        DeepRClassifier(engine="module", epochs=30),
        DeepRRegressor(engine="module", epochs=30),
        DeepRClassifier(method="fixed"),
        DeepRRegressor(method="dense"),
        DeepRClassifier(optimizer="momentum", learning_rate=0.05, l1=1e-3, scope="layer"),
    ],
    expected_failed_checks=_expected,
)
def test_sklearn_compatible_with_other_settings(estimator, check):
    check(estimator)
