"""The estimators on data that ships with scikit-learn, and in its pipelines and searches."""

import pickle
import re

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_classification
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import wirebound as wb
from wirebound.export import to_c
from wirebound.methods import METHODS, Setting
from wirebound.sklearn import DeepRClassifier, DeepRRegressor


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, random_state=0)


def _active(estimator):
    return sum(wiring.active for wiring in wb.wirings(estimator.model_))


def test_digits_with_a_tenth_of_the_connections(digits):
    train_x, test_x, train_y, test_y = digits
    found = DeepRClassifier(connectivity=0.1, random_state=0).fit(train_x, train_y)
    assert found.score(test_x, test_y) > 0.9
    assert found.budget_ == round(0.1 * (64 * 64 + 64 * 10)) == _active(found)
    for wiring in wb.wirings(found.model_):
        wiring.check()
    assert found.predict_proba(test_x).sum(1) == pytest.approx(np.ones(len(test_x)))


def test_regression_beats_the_mean_and_a_random_wiring():
    X, y = load_diabetes(return_X_y=True)
    scores = cross_val_score(DeepRRegressor(budget=60, epochs=30, random_state=0), X, y, cv=4)
    assert scores.mean() > 0.35  # linear regression has about 0.48


def test_several_targets(implementation):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    y = np.stack([X[:, 0] * 100 + 5, X[:, 1] - X[:, 2]], 1)
    found = DeepRRegressor(10, budget=40, epochs=15, batch_size=10, learning_rate=0.05, random_state=1).fit(X, y)
    assert found.score(X, y) > 0.7
    assert found.predict(X).shape == (100, 2)


@pytest.mark.parametrize("engine", ["fused", "module"])
def test_the_same_seed_gives_the_same_network(digits, engine):
    train_x, test_x, train_y, _ = digits
    make = DeepRClassifier(budget=300, epochs=2, engine=engine, random_state=3)
    one, two = make.fit(train_x, train_y).predict_proba(test_x), clone(make).fit(train_x, train_y).predict_proba(test_x)
    np.testing.assert_array_equal(one, two)
    other = clone(make).set_params(random_state=4).fit(train_x, train_y).predict_proba(test_x)
    assert np.abs(one - other).max() > 0.01


def test_both_engines_learn_the_same(digits):
    train_x, test_x, train_y, _ = digits
    settings = {"budget": 300, "epochs": 1, "random_state": 3}
    fused = DeepRClassifier(engine="fused", **settings).fit(train_x, train_y).predict_proba(test_x)
    module = DeepRClassifier(engine="module", **settings).fit(train_x, train_y).predict_proba(test_x)
    np.testing.assert_allclose(fused, module, atol=1e-3)


@pytest.mark.parametrize("keep", [pickle, joblib], ids=["pickle", "joblib"])
def test_kept_and_trained_on(digits, keep, tmp_path):
    train_x, test_x, train_y, _ = digits
    found = DeepRClassifier(budget=300, epochs=2, random_state=0).fit(train_x, train_y)
    if keep is pickle:
        again = pickle.loads(pickle.dumps(found))
    else:
        joblib.dump(found, tmp_path / "x.joblib")
        again = joblib.load(tmp_path / "x.joblib")
    np.testing.assert_array_equal(again.predict_proba(test_x), found.predict_proba(test_x))
    for estimator in (found, again):
        estimator.partial_fit(train_x[:500], train_y[:500])
        assert _active(estimator) == 300
    np.testing.assert_array_equal(again.predict_proba(test_x), found.predict_proba(test_x))


def test_partial_fit_learns(digits):
    train_x, test_x, train_y, test_y = digits
    found = DeepRClassifier(budget=600, learning_rate=0.005, random_state=0)
    with pytest.raises(ValueError, match="classes must be given"):
        found.partial_fit(train_x, train_y)
    for _ in range(15):
        found.partial_fit(train_x[:700], train_y[:700], classes=np.arange(10))
        found.partial_fit(train_x[700:], train_y[700:])
    assert found.score(test_x, test_y) > 0.9
    assert found.n_iter_ == 30
    with pytest.raises(ValueError, match="must be among classes"):
        found.partial_fit(train_x[:2], [3, 11])
    targets = DeepRRegressor(budget=50).partial_fit(train_x, train_y)
    with pytest.raises(ValueError, match="must have 1"):
        targets.partial_fit(train_x, np.stack([train_y, train_y], 1))


def test_pipeline_search_and_text_labels():
    X, y = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[y]
    steps = make_pipeline(MinMaxScaler(), DeepRClassifier(epochs=8, random_state=0))
    grid = {"deeprclassifier__budget": [20, 200], "deeprclassifier__l1": [0.01, 0.1]}
    search = GridSearchCV(steps, grid, cv=3).fit(X, names)
    assert search.best_score_ > 0.93
    assert set(search.predict(X)) == set(names)


def test_importances_find_the_informative_features():
    X, y = make_classification(
        300, 400, n_informative=5, n_redundant=0, n_clusters_per_class=1, class_sep=2.0, shuffle=False, random_state=3
    )
    found = DeepRClassifier((20,), budget=300, l1=0.7, random_state=0).fit(X, y)
    importance = found.feature_importances_
    assert importance.shape == (400,)
    assert importance.sum() == pytest.approx(1)
    assert len(set(np.argsort(-importance)[:5]) & set(range(5))) >= 3
    wired = np.diff(wb.wirings(found.model_)[0].colptr.numpy()) > 0
    assert (importance[~wired] == 0).all()
    chosen = SelectFromModel(found, prefit=True, max_features=5, threshold=-np.inf).transform(X)
    assert chosen.shape == (300, 5)


def test_importance_is_the_strength_of_paths():
    X, y = make_classification(100, 6, n_classes=2, random_state=0)
    found = DeepRClassifier((7, 5), budget=50, epochs=3, random_state=0).fit(X, y)
    dense = [layer.weight.detach().abs().double().numpy() for layer in wb.to_dense(found.model_) if hasattr(layer, "weight")]
    paths = np.einsum("cj,ji,ik->k", dense[2], dense[1], dense[0])
    np.testing.assert_allclose(found.feature_importances_, paths / paths.sum())


@pytest.mark.parametrize("standardize", [True, False])
def test_networks_for_export_take_raw_inputs(digits, standardize, tmp_path):
    train_x, test_x, train_y, _ = digits
    found = DeepRClassifier(budget=400, epochs=3, standardize=standardize, random_state=0).fit(train_x, train_y)
    network = found.to_network()
    logits = network.forward(test_x)
    np.testing.assert_array_equal(logits.argmax(1), found.predict(test_x))
    assert to_c(network, tmp_path / "n.h").connections <= 400
    target = DeepRRegressor(budget=400, epochs=3, standardize=standardize, random_state=0).fit(train_x, train_y * 7.0)
    np.testing.assert_allclose(target.to_network().forward(test_x)[:, 0], target.predict(test_x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", ["fixed", "set", "rigl", "dense", "pruning", "constant-rate"])
def test_other_methods(digits, method, tmp_path):
    train_x, test_x, train_y, _ = digits
    found = DeepRClassifier(budget=400, method=method, epochs=3, random_state=0).fit(train_x[:300], train_y[:300])
    assert found.score(train_x[:300], train_y[:300]) > 0.3
    if method != "dense":
        assert found.to_network().connections <= 400
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(test_x), found.predict(test_x))


class Halves(wb.Fixed):
    """A method of a user's own: a fixed wiring whose learning rate is a share of the optimiser's."""

    name = "halves"
    title = "Halves"
    settings = (Setting("share", "float", 0.5, "share of the learning rate that is taken", least=0, most=1),)

    def __init__(self, model, optimizer, *, share=0.5):
        super().__init__(model, optimizer)
        self.share = share

    def step(self):
        for group in self.optimizer.param_groups:
            group["lr"] *= self.share
        return super().step()


def test_a_method_registered_elsewhere_and_its_settings(digits, monkeypatch):
    train_x, _, train_y, _ = digits
    monkeypatch.setitem(METHODS, "halves", Halves)

    def fit(**settings):
        made = DeepRClassifier(budget=300, epochs=1, method="halves", random_state=0, **settings)
        return clone(made).fit(train_x[:200], train_y[:200])

    plain, none = fit(), fit(method_settings={"share": np.float32(0)})
    assert plain._method.share == 0.5
    assert none._method.share == 0
    assert _active(plain) == 300
    untrained = fit(method_settings={"share": 0.0}, learning_rate=0.7)
    np.testing.assert_array_equal(untrained.model_[0].wiring.theta.detach(), none.model_[0].wiring.theta.detach())
    assert plain.loss_curve_ != none.loss_curve_
    for wrong, message in (
        ({"shares": 1}, r"method_settings names \['shares'\], halves has share"),
        ({"share": 2.0}, r"share \(=2.0\) must be in \[0, 1\]"),
        ({"share": "all"}, r"share \(='all'\) must be a number"),
        (7, r"method_settings \(=7\) must be None or a dict"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(method_settings=wrong)


def test_defaults_are_those_of_the_declarations():
    """All but those that the docstring speaks of."""
    declared = {setting.name: setting.default for setting in METHODS["deep-r"].settings}
    given = {name: value for name, value in DeepRClassifier().get_params().items() if name in declared}
    assert {name for name, value in given.items() if value != declared[name]} == {"l1", "temperature"}


def test_settings_of_the_other_methods(digits):
    train_x, _, train_y, _ = digits
    made = DeepRClassifier(budget=300, epochs=1, method="set", method_settings={"fraction": 0.9, "replace_every": 2})
    assert made.fit(train_x[:200], train_y[:200])._method.steps == 7
    pruned = DeepRClassifier((10,), epochs=2, method="pruning", method_settings={"quality": 1.0}, random_state=0)
    assert pruned.fit(train_x[:200], train_y[:200]).to_network().connections < 740


def test_default_budget():
    small = DeepRClassifier((10,), epochs=1).fit(np.random.rand(20, 4), np.arange(20) % 2)
    assert small.budget_ == 60  # all there are
    wide = DeepRClassifier((10,), epochs=1).fit(np.random.rand(20, 2000), np.arange(20) % 2)
    assert wide.budget_ == 2002


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"connectivity": 1.7}, "connectivity (=1.7) must be in (0, 1]"),
        ({"connectivity": 0.5, "budget": 7}, "not both"),
        ({"budget": 10**9}, "budget (=1000000000) must be in [1, "),
        ({"method": "magic"}, "method (='magic') must be one of"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes (=(0,)) must be whole numbers >= 1"),
        ({"learning_rate": -1.0}, "learning_rate (=-1.0) must be a finite number > 0"),
        ({"hidden_layer_sizes": 2.5}, "hidden_layer_sizes (=2.5) must be whole numbers >= 1"),
        ({"learning_rate": "fast"}, "learning_rate (='fast') must be a number"),
        ({"budget": 10.7}, "budget (=10.7) must be a whole number"),
        ({"epochs": True}, "epochs (=True) must be a whole number"),
        ({"allocation": 7}, "allocation (=7) must be a string"),
        ({"momentum": None}, "momentum (=None) must be a number"),
        ({"bias": "no"}, "bias (='no') must be True or False"),
        ({"random_state": -1}, "Seed must be between"),
        ({"engine": "fused", "class_weight": {0: 2}}, "engine (='fused') cannot run this: rows or classes are weighted"),
        ({"engine": "fused", "optimizer": "rmsprop"}, "engine (='fused') cannot run this"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        DeepRClassifier(**settings).fit(np.random.rand(20, 4), np.arange(20) % 2)
