"""Estimators on SciPy's sparse matrices: they stay sparse, learn, weigh, stop early, stream and explain as on dense tables."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_pipeline

import wirebound as wb
from wirebound.sklearn import DeepRClassifier, DeepRRegressor

WIDE = 2**20


def texts(rows=240, seed=0):
    """A word of its own for each class, among words that say nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, rows)
    noise = [" ".join(f"w{rng.integers(400)}" for _ in range(8)) for _ in range(rows)]
    return [f"{('red', 'green', 'blue')[label]} {words}" for label, words in zip(y, noise, strict=True)], y


def hashed(rows=240, seed=0, columns=WIDE):
    made, y = texts(rows, seed)
    return HashingVectorizer(n_features=columns, alternate_sign=False).transform(made), y


def exact(model):
    for wiring in wb.wirings(model.model_):
        wiring.check()
    return sum(wiring.active for wiring in wb.wirings(model.model_)) == model.budget_


def test_a_million_columns_in_a_pipeline():
    made, y = texts()
    network = DeepRClassifier((16,), budget=1_000, epochs=12, random_state=0)
    model = make_pipeline(HashingVectorizer(n_features=WIDE), network).fit(made, y)
    assert model.score(*texts(seed=1)) > 0.9
    assert exact(network)
    assert network.n_features_in_ == WIDE
    importances = network.feature_importances_
    assert importances.shape == (WIDE,)
    assert importances.sum() == pytest.approx(1)
    words = HashingVectorizer(n_features=WIDE).transform(["red", "green", "blue"]).indices
    assert set(words) <= set(np.argsort(-importances)[:12])


@pytest.mark.parametrize("form", ["csc", "coo", "lil", "dok", "bsr"])
def test_every_format_is_the_same_matrix(form):
    X, y = hashed(60, columns=200)
    settings = {"budget": 200, "epochs": 2, "random_state": 0}
    expected = DeepRClassifier(**settings).fit(X, y).predict_proba(X)
    other = X.asformat(form)
    np.testing.assert_allclose(DeepRClassifier(**settings).fit(other, y).predict_proba(other), expected)


def test_predictions_do_not_depend_on_the_kind_of_matrix():
    X, y = hashed(80, columns=300)
    for trained_on in (X, X.toarray()):
        model = DeepRClassifier(budget=300, epochs=3, random_state=0).fit(trained_on, y)
        np.testing.assert_allclose(model.predict_proba(X), model.predict_proba(X.toarray()), atol=1e-12)
        logits = model.to_network().forward(X, np.float64)
        np.testing.assert_allclose(model.to_network().forward(X.toarray(), np.float64), logits, atol=1e-12)
        assert (model.classes_[logits.argmax(1)] == model.predict(X)).all()


def test_modules_learn_too_and_weights_count():
    X, y = hashed(120)
    weights = np.where(y == 0, 3.0, 1.0)
    model = DeepRClassifier((16,), budget=600, epochs=40, class_weight={0: 2.0, 1: 1.0, 2: 1.0}, random_state=0)
    model.fit(X, y, sample_weight=weights)
    assert exact(model)
    assert model.score(X, y) > 0.8
    gone = np.where(y == 2, 0.0, 1.0)
    two = DeepRClassifier((), budget=600, epochs=2, random_state=0).fit(X, y, sample_weight=gone)
    assert set(two.predict(X)) <= {0, 1}


def test_a_stream_of_parts():
    model = DeepRClassifier((), budget=600, random_state=0)
    for seed in range(6):
        model.partial_fit(*hashed(80, seed), classes=[0, 1, 2])
        assert exact(model)
    assert model.score(*hashed(100, 99)) > 0.8
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(*hashed(80, columns=2**10))


def test_early_stopping_keeps_the_best():
    X, y = hashed(200)
    model = DeepRClassifier((), budget=600, epochs=20, early_stopping=True, n_iter_no_change=3, random_state=0).fit(X, y)
    assert exact(model)
    assert model.best_validation_score_ == max(model.validation_scores_) > 0.8


@pytest.mark.parametrize("method", ["fixed", "set", "dense"])
def test_other_methods(method):
    X, y = hashed(100, columns=500)
    model = DeepRClassifier((), budget=400, epochs=8, method=method, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8


def test_targets():
    X, y = hashed(150)
    model = DeepRRegressor((16,), budget=500, epochs=20, random_state=0).fit(X, 5.0 + 10.0 * (y == 1))
    assert exact(model)
    assert model.score(X, 5.0 + 10.0 * (y == 1)) > 0.5


def test_same_seed_same_network():
    X, y = hashed(60)
    first, again = (DeepRClassifier((8,), budget=300, epochs=2, random_state=1).fit(X, y) for _ in range(2))
    for one, other in zip(first.to_network().weighted, again.to_network().weighted, strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.columns, other.columns)


def test_what_is_not_finite_is_refused():
    X, y = hashed(30, columns=50)
    X.data[0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        DeepRClassifier(budget=50).fit(X, y)
    assert sp.issparse(X)
