"""Several labels for each row: sigmoid and binary cross-entropy, 0 and 1 for every label."""

import pickle
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import f1_score, recall_score
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import ClassifierChain
from sklearn.neural_network import MLPClassifier

import wirebound as wb
from wirebound.sklearn import DeepRClassifier


@pytest.fixture(scope="module")
def labels():
    return make_multilabel_classification(300, 20, n_classes=4, n_labels=2, random_state=0)


def _made(**settings):
    return DeepRClassifier((20,), **{"budget": 200, "epochs": 12, "random_state": 0, **settings})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_each_label_is_learnt(labels, implementation):
    X, Y = labels
    found = _made().fit(X, Y)
    theirs = MLPClassifier((20,), max_iter=5).set_params(random_state=0).fit(X, Y)
    np.testing.assert_array_equal(found.classes_, theirs.classes_)
    chosen, probability = found.predict(X), found.predict_proba(X)
    assert chosen.shape == theirs.predict(X).shape == probability.shape == theirs.predict_proba(X).shape
    assert chosen.dtype == theirs.predict(X).dtype
    np.testing.assert_array_equal(chosen, probability > 0.5)
    assert f1_score(Y, chosen, average="macro") > 0.75
    assert found.score(X, Y) == pytest.approx((chosen == Y).all(1).mean())
    assert found.budget_ == 200 == sum(wiring.active for wiring in wb.wirings(found.model_))
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict_proba(X), probability)
    np.testing.assert_allclose(1 / (1 + np.exp(-found.to_network().forward(X))), probability, atol=1e-4)


def test_labels_in_other_forms(labels):
    X, Y = labels
    wanted = _made(epochs=2).fit(X, Y).predict_proba(X)
    for given in (Y.tolist(), Y.astype(bool), Y.astype(float), sparse.csr_array(Y)):
        np.testing.assert_array_equal(_made(epochs=2).fit(X, given).predict_proba(X), wanted)


def test_one_column_is_a_class_and_not_a_label(labels):
    X, Y = labels
    with pytest.warns(UserWarning, match="column-vector"):
        found = _made(epochs=1).fit(X, Y[:, :1])
    assert found.predict(X).shape == (300,)
    assert found.predict_proba(X).shape == (300, 2)


def test_a_label_that_never_comes(labels):
    X, Y = labels
    Y = Y.copy()
    Y[:, 1] = 0
    found = _made(class_weight="balanced").fit(X, Y)
    assert found.predict(X)[:, 1].sum() == 0


def test_labels_with_weights_and_early_stopping(labels):
    X, Y = labels
    Y = Y * (np.arange(300)[:, None] % 4 == 0)  # each label is rare now
    plain = _made(early_stopping=True, epochs=30).fit(X, Y)
    weights = np.where(Y.any(1), 5.0, 1.0)
    for settings, given in [
        ({"class_weight": "balanced"}, None),
        ({"class_weight": {1: 6.0}}, None),
        ({"class_weight": [{0: 1, 1: 6}, "balanced", {1: 6}, {1: 6}]}, weights),
    ]:
        found = _made(epochs=30, early_stopping=True, **settings).fit(X, Y, sample_weight=given)
        assert recall_score(Y, found.predict(X), average="macro") > recall_score(Y, plain.predict(X), average="macro")
        assert found.best_validation_score_ == max(found.validation_scores_)
        assert sum(wiring.active for wiring in wb.wirings(found.model_)) == 200
    with pytest.raises(ValueError, match="must have one entry for each of 4 labels"):
        _made(class_weight=["balanced"]).fit(X, Y)


def test_labels_in_pieces(labels):
    X, Y = labels
    found = _made(learning_rate=0.02)
    for _ in range(12):
        found.partial_fit(X[:150], Y[:150]).partial_fit(X[150:], Y[150:])
    assert f1_score(Y, found.predict(X), average="macro") > 0.7
    with pytest.raises(ValueError, match=re.escape("y of shape (300, 3) must have shape [rows, 4]")):
        found.partial_fit(X, Y[:, :3])
    with pytest.raises(ValueError, match=re.escape("y of shape (300,) must have shape [rows, 4]")):
        found.partial_fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="must be those of the first call"):
        _made().partial_fit(X, Y, classes=[0, 1])


def test_search_and_chain(labels):
    X, Y = labels
    search = GridSearchCV(_made(epochs=4), {"l1": [0.05, 0.2]}, cv=2).fit(X, Y)
    assert search.predict(X).shape == Y.shape
    assert ClassifierChain(_made(epochs=2)).fit(X, Y).predict(X).shape == Y.shape


@pytest.mark.parametrize("values", [(-1, 1), (1, 2), (0, 7)])
def test_other_numbers_are_refused(labels, values):
    X, Y = labels
    with pytest.raises(ValueError, match="must hold 0 and 1, one column for each label"):
        _made().fit(X, np.array(values)[Y])


def test_the_fused_path_does_not_know_labels(labels):
    with pytest.raises(ValueError, match="cannot run this: y has several labels"):
        _made(engine="fused").fit(*labels)
