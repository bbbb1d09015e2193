"""Estimators in the hands of users: data frames, threads, numbers of NumPy, fits that fail."""

import sys
import threading

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from wirebound.nn.perceptron import draw_weights, perceptron
from wirebound.sklearn import DeepRClassifier, DeepRRegressor


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:300], y[:300]


@pytest.fixture
def busy_threads():
    """Python changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_data_frames():
    pytest.importorskip("pandas")
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    names = y.map({0: "malignant", 1: "benign"})
    made = DeepRClassifier((8,), budget=60, epochs=4, class_weight="balanced", early_stopping=True, random_state=0)
    found = made.fit(X, names, sample_weight=y + 1)
    np.testing.assert_array_equal(found.feature_names_in_, X.columns)
    plain = clone(made).fit(X.to_numpy(), names.to_numpy(), sample_weight=(y + 1).to_numpy())
    np.testing.assert_array_equal(found.predict_proba(X), plain.predict_proba(X.to_numpy()))
    assert set(found.predict(X)) == {"malignant", "benign"}
    with pytest.raises(ValueError, match="feature names"):
        found.predict(X[X.columns[::-1]])


@pytest.mark.parametrize(
    ("methods", "weighted"),
    [
        (("deep-r", "deep-r"), False),
        (("deep-r", "fixed"), True),
        (("dense", "dense"), False),
        (("constant-rate", "constant-rate"), False),
    ],
)
def test_fits_in_threads_are_those_of_one_after_another(digits, busy_threads, methods, weighted):
    X, y = digits
    weights = np.random.default_rng(0).random(len(X)) if weighted else None

    def fit(method, seed):
        made = DeepRClassifier((300,), connectivity=0.8, method=method, batch_size=15, epochs=12, optimizer="sgd")
        made.set_params(learning_rate=0.05, l1=1e-4, temperature=1e-4, random_state=seed, early_stopping=weighted)
        made.set_params(schedule="constant", scope="global", allocation="paper")
        return made.fit(X, y, sample_weight=weights).predict_proba(X)

    jobs = [(method, seed) for seed, method in enumerate(methods)]
    alone = [fit(*job) for job in jobs]
    together = joblib.Parallel(2, backend="threading")(joblib.delayed(fit)(*job) for job in jobs)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_search_in_threads(digits):
    grid = {"budget": [100, 300], "early_stopping": [False, True]}
    made = DeepRClassifier((20,), epochs=2, random_state=0)
    alone = GridSearchCV(made, grid, cv=2).fit(*digits)
    with joblib.parallel_backend("threading"):
        together = GridSearchCV(made, grid, cv=2, n_jobs=2).fit(*digits)
    np.testing.assert_array_equal(alone.cv_results_["mean_test_score"], together.cv_results_["mean_test_score"])


def test_dense_networks_do_not_draw_from_the_global_generator():
    def make():
        return draw_weights(perceptron([200] * 7 + [10], device="meta"), seed=3)

    alone = make()
    done = threading.Event()

    def draw():
        while not done.is_set():
            torch.rand(100)

    other = threading.Thread(target=draw)
    other.start()
    try:
        beside = [make() for _ in range(20)]
    finally:
        done.set()
        other.join()
    for model in beside:
        assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), model.parameters(), strict=True))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = torch.nn.Linear(200, 200)
    assert torch.equal(first.weight, alone[0].weight)
    assert torch.equal(first.bias, alone[0].bias)


def test_numbers_of_numpy(digits):
    plain = DeepRClassifier((10, 5), budget=100, epochs=2, batch_size=16, learning_rate=0.02, random_state=3)
    other = DeepRClassifier(
        (np.int64(10), np.int32(5)),
        budget=np.int64(100),
        epochs=np.int64(2),
        batch_size=np.uint8(16),
        learning_rate=np.float64(0.02),
        bias=np.True_,
        random_state=np.int64(3),
    )
    np.testing.assert_array_equal(plain.fit(*digits).predict_proba(digits[0]), other.fit(*digits).predict_proba(digits[0]))


def test_a_single_class(digits):
    X, _ = digits
    found = DeepRClassifier((5,), epochs=1).fit(X, ["only"] * len(X))
    assert set(found.predict(X)) == {"only"}
    np.testing.assert_array_equal(found.predict_proba(X), np.ones((len(X), 1)))


@pytest.mark.parametrize("kind", [DeepRClassifier, DeepRRegressor])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (np.where(X > 0, X, np.nan), y), "contains NaN"),
        (lambda X, y: (X[:0], y[:0]), "0 sample"),
        (lambda X, y: (X[:, :0], y), "0 feature"),
        (lambda X, y: (X[:, 0], y), "Expected 2D array"),
        (lambda X, y: (X, y[:7]), "inconsistent numbers of samples"),
        (lambda X, y: (X, np.where(y > 5, np.nan, y)), "y contains NaN"),
        (lambda X, y: (X, None), "requires y to be passed"),
        (lambda X, y: (X, np.zeros((len(X), 2, 2), dtype=int)), "dim 3"),
    ],
)
def test_bad_data(digits, kind, change, message):
    with pytest.raises(ValueError, match=message):
        kind().fit(*change(*digits))


def test_numbers_beyond_single_precision(digits):
    X, y = digits
    with pytest.raises(ValueError, match="small enough for single precision"):
        DeepRClassifier(standardize=False).fit(X * 1e300, y)


def test_a_fit_that_breaks_off_leaves_nothing_to_predict_with(digits, monkeypatch):
    X, y = digits
    found = DeepRClassifier((10,), budget=100, epochs=2).fit(X, y)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("wirebound.sklearn.base.epoch_losses", interrupted)
        with pytest.raises(KeyboardInterrupt):
            found.fit(X[:, :30], y)
    with pytest.raises(NotFittedError):
        found.predict(X[:, :30])
    assert found.fit(X, y).predict(X).shape == y.shape
