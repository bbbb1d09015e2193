"""scikit-learn's own checks of estimators: all of them, with no expected failure."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from wirebound.sklearn import DeepRClassifier, DeepRRegressor


@parametrize_with_checks([DeepRClassifier(), DeepRRegressor()])
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
    ]
)
def test_sklearn_compatible_with_other_settings(estimator, check):
    check(estimator)
