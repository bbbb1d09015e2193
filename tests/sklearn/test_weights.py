"""``sample_weight`` and ``class_weight``: rows that count more, less, or not at all."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, make_classification
from sklearn.metrics import recall_score

from wirebound.sklearn import DeepRClassifier, DeepRRegressor
from wirebound.sklearn.checks import Examples


@pytest.fixture(scope="module")
def rare():
    """One class in ten rows, and noise: who minds every row alike rarely says it."""
    return make_classification(400, 8, n_informative=3, weights=[0.9], flip_y=0.05, class_sep=0.4, random_state=1)


def _table(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) * [1, 10, 0.1, 1, 1] + 3
    score = X[:, 0] + X[:, 1] / 10 + 0.5 * rng.normal(size=60)
    return X, (score > 4.5).astype(int) if kind is DeepRClassifier else score


def _made(kind, **settings):
    """One batch an epoch, so that batches hold the same rows whatever their number."""
    settings = {"budget": 20, "epochs": 20, "batch_size": 1000, "learning_rate": 0.03, **settings}
    return kind((6,), random_state=0, **settings)


def _found(estimator, X):
    return estimator.predict_proba(X) if isinstance(estimator, DeepRClassifier) else estimator.predict(X)


@pytest.mark.parametrize("kind", [DeepRClassifier, DeepRRegressor])
def test_a_row_of_weight_zero_is_not_there(kind):
    X, y = _table(kind)
    weights = np.linspace(0, 1, 60) * (np.arange(60) % 3 > 0)
    kept = weights > 0
    outlier = np.where(kept[:, None], X, 1e6)
    one = _made(kind, batch_size=8).fit(outlier, y, sample_weight=weights)
    two = _made(kind, batch_size=8).fit(X[kept], y[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(_found(one, X), _found(two, X))


def test_a_class_without_weight_is_not_there():
    X, y = _table(DeepRRegressor)
    y = np.digitize(y, [3.5, 5])
    found = _made(DeepRClassifier, epochs=1).fit(X, y, sample_weight=(y != 1).astype(float))
    np.testing.assert_array_equal(found.classes_, [0, 2])


@pytest.mark.parametrize("kind", [DeepRClassifier, DeepRRegressor])
@pytest.mark.parametrize("engine", ["auto", "module"])
def test_whole_weights_are_repeated_rows(kind, engine, implementation):
    X, y = _table(kind)
    times = np.arange(60) % 4
    settings = {"engine": engine, **({"class_weight": "balanced"} if kind is DeepRClassifier else {})}
    weighted = _made(kind, **settings).fit(X, y, sample_weight=times)
    repeated = _made(kind, **settings).fit(X.repeat(times, 0), y.repeat(times))
    np.testing.assert_allclose(_found(weighted, X), _found(repeated, X), rtol=0.01, atol=2e-3)
    np.testing.assert_allclose(weighted.scaler_.mean_, repeated.scaler_.mean_)
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-3)


def test_whole_weights_are_repeated_rows_on_average_where_batches_differ():
    X, y = load_diabetes(return_X_y=True)
    times = 1 + 3 * (X[:, 2] > 0)

    def mean_of_seeds(rows, targets, weights):
        made = [DeepRRegressor((), connectivity=1.0, l1=0.0, epochs=25, random_state=seed) for seed in range(2)]
        return np.mean([one.fit(rows, targets, sample_weight=weights).predict(X) for one in made], axis=0)

    weighted = mean_of_seeds(X, y, times)
    repeated = mean_of_seeds(X.repeat(times, 0), y.repeat(times), None)
    plain = mean_of_seeds(X, y, None)
    far = np.abs(plain - repeated).mean()
    assert np.abs(weighted - repeated).mean() < 0.35 * far


@pytest.mark.parametrize("kind", [DeepRClassifier, DeepRRegressor])
def test_only_ratios_of_weights_count(kind):
    X, y = _table(kind)
    weights = np.linspace(0.5, 2, 60)
    one = _made(kind, batch_size=8).fit(X, y, sample_weight=weights)
    two = _made(kind, batch_size=8).fit(X, y, sample_weight=weights * 1024)
    np.testing.assert_array_equal(_found(one, X), _found(two, X))
    plain, ones = _made(kind, batch_size=8).fit(X, y), _made(kind, batch_size=8).fit(X, y, sample_weight=np.ones(60))
    np.testing.assert_array_equal(_found(plain, X), _found(ones, X))
    assert np.abs(_found(one, X) - _found(plain, X)).max() > 1e-3


def test_weights_of_the_loss_have_mean_one():
    weights = Examples(np.zeros((3, 1)), np.zeros(3), np.array([1.0, 2, 3])).loss_weights()
    np.testing.assert_allclose(weights, [0.5, 1, 1.5])
    both = Examples(np.zeros((2, 1)), np.zeros((2, 2)), np.array([1.0, 3]), np.array([[1.0, 2], [2, 1]])).loss_weights()
    np.testing.assert_allclose(both, np.array([[1, 2], [6, 3]]) / 3)


def test_score_is_weighted(rare):
    X, y = rare
    found = DeepRClassifier((6,), budget=30, epochs=5, random_state=0).fit(X, y)
    only = (y == 1).astype(float)
    assert found.score(X, y, sample_weight=only) == pytest.approx(recall_score(y, found.predict(X)))


@pytest.mark.parametrize("kind", [DeepRClassifier, DeepRRegressor])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(60), "sample_weight must be >= 0, the least is -1"),
        (np.zeros(60), "zero"),
        (np.full(60, np.nan), "NaN"),
        (np.full(60, 1e308), "sample_weight must have a finite sum"),
        (np.ones(59), "sample_weight.shape == (59,), expected (60,)"),
        (np.ones((60, 2)), "must be 1D array or scalar"),
    ],
)
def test_weights_that_are_refused(kind, weights, message):
    X, y = _table(kind)
    for fit in (_made(kind).fit, _made(kind).partial_fit):
        more = {"classes": [0, 1]} if kind is DeepRClassifier and fit.__name__ == "partial_fit" else {}
        with pytest.raises(ValueError, match=re.escape(message)):
            fit(X, y, sample_weight=weights, **more)


def test_partial_fit_weighs_rows_and_the_scaling():
    X, y = _table(DeepRRegressor)
    found = DeepRRegressor((6,), budget=20, random_state=0).partial_fit(X, y)
    found.partial_fit(X + 50, y, sample_weight=np.where(np.arange(60) < 10, 6.0, 0.0))
    np.testing.assert_allclose(found.scaler_.mean_, np.stack([X.mean(0), X[:10].mean(0) + 50]).mean(0))
    plain, weighted = DeepRClassifier((6,), budget=20, random_state=0), DeepRClassifier((6,), budget=20, random_state=0)
    labels = (y > 4.5).astype(int)
    for _ in range(30):
        plain.partial_fit(X, labels, classes=[0, 1])
        weighted.partial_fit(X, labels, classes=[0, 1], sample_weight=np.where(labels == 1, 20.0, 1.0))
    assert weighted.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.03


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1, 1: 9}, {1: 9.0}])
def test_classes_with_weights(rare, class_weight):
    X, y = rare
    settings = {"budget": 40, "epochs": 8, "random_state": 0}
    plain = DeepRClassifier((8,), **settings).fit(X, y)
    weighted = DeepRClassifier((8,), class_weight=class_weight, **settings).fit(X, y)
    assert recall_score(y, weighted.predict(X)) > recall_score(y, plain.predict(X)) + 0.2
    same = DeepRClassifier((8,), **settings).fit(X, y, sample_weight=None)
    np.testing.assert_array_equal(same.predict_proba(X), plain.predict_proba(X))


def test_balanced_is_the_dict_that_it_says(rare):
    X, y = rare
    names = np.array(["often", "rare"])[y]
    counts = np.bincount(y)
    by_hand = {"often": 400 / (2 * counts[0]), "rare": 400 / (2 * counts[1])}
    settings = {"budget": 40, "epochs": 2, "random_state": 0}
    one = DeepRClassifier((8,), class_weight="balanced", **settings).fit(X, names)
    two = DeepRClassifier((8,), class_weight=by_hand, **settings).fit(X, names)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("magic", "class_weight (='magic') must be None, 'balanced', or a dict"),
        ({"often": 2}, "class_weight names ['often'], which are not among the classes, and leaves out [0, 1]"),
        ({0: -1}, "class_weight of 0 (=-1) must be a finite number >= 0"),
        ({0: 0, 1: 0}, "must leave a weight that is not zero"),
        (7, "class_weight (=7) must be None"),
    ],
)
def test_class_weights_that_are_refused(rare, class_weight, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        DeepRClassifier(class_weight=class_weight).fit(*rare)


def test_balanced_needs_all_rows_at_once(rare):
    with pytest.raises(ValueError, match="cannot be used in partial_fit"):
        DeepRClassifier(class_weight="balanced").partial_fit(*rare, classes=[0, 1])
    DeepRClassifier(class_weight={1: 3}, budget=20).partial_fit(*rare, classes=[0, 1])


def test_a_dict_may_name_a_class_that_is_not_in_this_fold(rare):
    X, y = rare
    DeepRClassifier(class_weight={0: 1, 1: 2, 2: 5}, budget=20, epochs=1).fit(X, y)
