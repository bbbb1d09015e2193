"""``early_stopping``: rows held out, the best network kept, exactly K connections in it."""

import pickle
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.neural_network import MLPClassifier

import wirebound as wb
from wirebound.sklearn import DeepRClassifier, DeepRRegressor
from wirebound.sklearn.checks import Examples, held_out
from wirebound.sklearn.training import EarlyStopping


@pytest.fixture(scope="module")
def noisy():
    """Labels of which a third are wrong: a network learns, and then learns them by heart."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    return X[:500], np.where(rng.random(500) < 0.35, rng.integers(0, 10, 500), y[:500])


def _checked(estimator):
    for wiring in wb.wirings(estimator.model_):
        wiring.check()
    return sum(wiring.active for wiring in wb.wirings(estimator.model_))


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("engine", ["fused", "module"])
def test_the_best_network_is_kept(noisy, engine, scope, monkeypatch):
    X, y = noisy
    seen = []
    note = EarlyStopping.after_epoch

    def watched(stopping):
        ends = note(stopping)
        seen.append({name: value.clone() for name, value in stopping.parts[0].state_dict().items()})
        return ends

    monkeypatch.setattr(EarlyStopping, "after_epoch", watched)
    made = DeepRClassifier(
        (30,), budget=400, epochs=60, early_stopping=True, n_iter_no_change=3, scope=scope, engine=engine, random_state=0
    )
    found = clone(made).fit(X, y)
    assert found.n_iter_ == len(found.validation_scores_) == len(found.loss_curve_) < 60
    assert found.best_validation_score_ == max(found.validation_scores_)
    best = int(np.argmax(found.validation_scores_))
    assert found.n_iter_ > best + 1
    assert max(found.validation_scores_[best + 1 :]) <= found.best_validation_score_
    for name, value in found.model_.state_dict().items():
        assert torch.equal(value, seen[best][name]), name
    assert any(not torch.equal(seen[best][name], value) for name, value in seen[-1].items())
    assert _checked(found) == 400
    assert found.n_steps_ == (best + 1) * -(-450 // 32)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))
    np.testing.assert_array_equal(clone(made).fit(X, y).predict_proba(X), found.predict_proba(X))


def test_the_score_is_that_of_the_rows_held_out(noisy):
    X, y = noisy
    found = DeepRClassifier((30,), budget=400, epochs=8, early_stopping=True, validation_fraction=0.2, random_state=0)
    found.fit(X, y)
    codes = np.searchsorted(found.classes_, y)
    _, held = held_out(Examples(X, codes), 0.2, codes, found._settings["seed"])
    assert len(held) == 100
    assert found.score(held.X, found.classes_[held.y]) == found.best_validation_score_
    shares = np.bincount(held.y, minlength=10) / np.bincount(codes, minlength=10)
    np.testing.assert_allclose(shares, 0.2, atol=0.02)


def test_it_ends_as_in_scikit_learn():
    """The same scores end training after the same number of epochs."""

    class _Method:
        model = optimizer = property(lambda self: self)

        def state_dict(self):
            return {}

    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = np.round(np.cumsum(rng.normal(size=60)) / 10, 2)
        theirs = MLPClassifier(n_iter_no_change=4, tol=0.05, early_stopping=True)
        theirs._no_improvement_count, theirs.validation_scores_, theirs.best_validation_score_ = 0, [], -np.inf
        theirs.coefs_ = theirs.intercepts_ = []
        stream = iter(scores.tolist())
        ours = EarlyStopping(_Method(), lambda stream=stream: next(stream), 4, 0.05)
        for score in scores:
            theirs._score = lambda *_, score=score, **__: score
            theirs._update_no_improvement_count(True, None, None, None)
            ends = theirs._no_improvement_count > theirs.n_iter_no_change
            assert ours.after_epoch() == ends
            assert ours.best == theirs.best_validation_score_
            if ends:
                break


@pytest.mark.parametrize("method", ["fixed", "set", "rigl", "dense", "constant-rate"])
def test_other_methods(noisy, method):
    X, y = noisy
    made = DeepRClassifier((20,), budget=300, method=method, epochs=25, n_iter_no_change=2, random_state=0)
    found = made.set_params(early_stopping=True).fit(X, y)
    codes = np.searchsorted(found.classes_, y)
    _, held = held_out(Examples(X, codes), 0.1, codes, found._settings["seed"])
    assert found.score(held.X, found.classes_[held.y]) == found.best_validation_score_
    if method in ("fixed", "set", "rigl"):
        assert _checked(found) == 300


def test_training_goes_on_from_the_best_network(noisy):
    X, y = noisy
    found = DeepRClassifier((30,), budget=400, epochs=20, early_stopping=True, n_iter_no_change=2, random_state=0)
    found.fit(X, y)
    epochs, steps = found.n_iter_, found.n_steps_
    with pytest.raises(ValueError, match="partial_fit does not support early_stopping=True"):
        found.partial_fit(X, y)
    found.set_params(early_stopping=False).partial_fit(X, y)
    assert (found.n_iter_, found.n_steps_) == (epochs + 1, steps + 16)
    assert _checked(found) == 400


def test_regression_with_weights():
    X, y = load_diabetes(return_X_y=True)
    y = np.stack([y, 1000 * X[:, 2]], 1)
    weights = np.linspace(0, 1, len(y))
    found = DeepRRegressor((20,), budget=100, epochs=60, early_stopping=True, n_iter_no_change=3, random_state=0)
    found.fit(X, y, sample_weight=weights)
    _, held = held_out(Examples(X[1:], y[1:], weights[1:]), 0.1, None, found._settings["seed"])
    score = found.score(held.X, held.y, sample_weight=held.sample_weight)
    assert score == pytest.approx(found.best_validation_score_)
    assert score > 0.5
    assert _checked(found) == 100


def test_without_it_there_are_no_scores(noisy):
    found = DeepRClassifier((5,), epochs=1).fit(*noisy)
    assert found.validation_scores_ is None
    assert found.best_validation_score_ is None


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({"validation_fraction": 0.0}, 100, "validation_fraction (=0.0) must be in (0, 1)"),
        ({"validation_fraction": 1.0}, 100, "validation_fraction (=1.0) must be in (0, 1)"),
        ({"n_iter_no_change": 0}, 100, "n_iter_no_change (=0) must be a finite number >= 1"),
        ({"n_iter_no_change": 2.5}, 100, "n_iter_no_change (=2.5) must be a whole number"),
        ({"tol": -0.1}, 100, "tol (=-0.1) must be a finite number >= 0"),
        ({"early_stopping": "yes"}, 100, "early_stopping (='yes') must be True or False"),
        ({"method": "pruning"}, 100, "early_stopping (=True) cannot be used with method (='pruning')"),
        ({}, 11, "early_stopping cannot hold out validation_fraction (=0.1) of the rows: The least populated class"),
        ({"validation_fraction": 0.02}, 100, "of the rows: The test_size = 2 should be greater or equal to the number of"),
    ],
)
def test_wrong_settings(settings, rows, message):
    X, y = load_digits(return_X_y=True)
    with pytest.raises(ValueError, match=re.escape(message)):
        DeepRClassifier(**{"early_stopping": True, **settings}).fit(X[:rows], y[:rows])


def test_too_few_rows():
    with pytest.raises(ValueError, match="must hold out at least 2 rows"):
        DeepRRegressor(early_stopping=True).fit(np.random.rand(8, 3), np.arange(8))
