"""Wide tables: does the wiring find the informative columns? Against scikit-learn's own selectors, several seeds.

    python -m wirebound_lab.paper.wide_tables --out results/wide_tables

A few hundred rows, two thousand columns, of which few matter and it is known which: three generated problems, and data
sets that ship with scikit-learn, widened by probes (columns of the data set with their rows shuffled, so that each has
the distribution of a real column and says nothing). Settings are chosen by cross-validation on the training rows only.

For each method: the share of informative columns among the k that it ranks highest (k is the number of informative
ones), the test accuracy of its own model, and that of one classifier for all, an RBF SVM on those k columns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import f_classif, mutual_info_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from wirebound.sklearn import DeepRClassifier

SEEDS = (0, 1, 2)
COLUMNS = 2000
ROWS = 300
TEST_ROWS = 2000
GRID: dict[str, list[Any]] = {"budget": [300, 1000], "l1": [0.1, 0.3, 0.7, 0.9]}  # of DEEP R


@dataclass(frozen=True, eq=False)
class Wide:
    """One table, split, with the columns that matter."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    informative: frozenset[int]


# Tables


def _linear(seed: int) -> Wide:
    """Ten columns that add up, each with a weight of 1 or -1; 5 % of the labels are wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS + TEST_ROWS, COLUMNS))
    y = (X[:, :10] @ rng.choice([-1.0, 1.0], 10) > 0) ^ (rng.random(len(X)) < 0.05)
    return _split(X, y.astype(int), 10, rng, seed)


def _clusters(seed: int) -> Wide:
    """scikit-learn's make_classification: two clusters for each of two classes, in ten dimensions."""
    X, y = make_classification(
        ROWS + TEST_ROWS, COLUMNS, n_informative=10, n_redundant=0, class_sep=1.5, shuffle=False, random_state=seed
    )
    return _split(X, y, 10, np.random.default_rng(seed), seed)


def _squares(seed: int) -> Wide:
    """Inside or outside of a sphere in four dimensions: no column differs in its mean between the classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS + TEST_ROWS, COLUMNS))
    distance = (X[:, :4] ** 2).sum(1)
    return _split(X, (distance > np.median(distance)).astype(int), 4, rng, seed)


def _with_probes(load: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Callable[[int], Wide]:
    def make(seed: int) -> Wide:
        rng = np.random.default_rng(seed)
        X, y = load(return_X_y=True)
        X = X[:, X.std(0) > 0]
        real = X.shape[1]
        probes = [rng.permutation(X[:, rng.integers(real)]) for _ in range(COLUMNS - real)]
        return _split(np.column_stack([X, *probes]), y, real, rng, seed)

    return make


def _split(X: np.ndarray, y: np.ndarray, informative: int, rng: np.random.Generator, seed: int) -> Wide:
    """Columns in random order, rows split; of a real data set, at most half of them are for training."""
    order = rng.permutation(X.shape[1])
    rows = min(ROWS, len(y) // 2)
    parts = train_test_split(X[:, order], y, train_size=rows, stratify=y, random_state=seed)
    where = frozenset(np.flatnonzero(order < informative).tolist())
    return Wide(parts[0], parts[2], parts[1], parts[3], where)


TABLES: dict[str, Callable[[int], Wide]] = {
    "linear": _linear,
    "clusters": _clusters,
    "squares": _squares,
    "breast cancer + probes": _with_probes(load_breast_cancer),
    "wine + probes": _with_probes(load_wine),
    "digits + probes": _with_probes(load_digits),
}


# Methods: the score of each column, and the test accuracy of the method's own model, if it has one


def _search(model: Any, grid: dict[str, list[Any]], table: Wide, seed: int) -> Any:
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    return GridSearchCV(model, grid, cv=folds).fit(table.train_x, table.train_y)


def _deep_r(table: Wide, seed: int) -> tuple[np.ndarray, float, dict[str, Any]]:
    found = _search(DeepRClassifier((20,), random_state=seed), GRID, table, seed)
    return found.best_estimator_.feature_importances_, found.score(table.test_x, table.test_y), found.best_params_


def _l1_logistic(table: Wide, seed: int) -> tuple[np.ndarray, float, dict[str, Any]]:
    several = len(np.unique(table.train_y)) > 2
    # liblinear is fast and takes two classes; saga takes several.
    settings = {"solver": "saga", "max_iter": 100} if several else {"solver": "liblinear"}
    # scikit-learn 1.8 renamed the choice of the penalty.
    l1 = {"l1_ratio": 1.0} if LogisticRegression().penalty == "deprecated" else {"penalty": "l1"}
    model = make_pipeline(StandardScaler(), LogisticRegression(random_state=seed, **l1, **settings))
    found = _search(model, {"logisticregression__C": [0.03, 0.1, 0.3, 1.0, 3.0]}, table, seed)
    return np.abs(found.best_estimator_[-1].coef_).sum(0), found.score(table.test_x, table.test_y), found.best_params_


def _extra_trees(table: Wide, seed: int) -> tuple[np.ndarray, float, dict[str, Any]]:
    found = _search(ExtraTreesClassifier(300, random_state=seed), {"max_features": ["sqrt", 0.1]}, table, seed)
    return found.best_estimator_.feature_importances_, found.score(table.test_x, table.test_y), found.best_params_


def _f_classif(table: Wide, seed: int) -> tuple[np.ndarray, None, dict[str, Any]]:
    return np.nan_to_num(f_classif(table.train_x, table.train_y)[0]), None, {}


def _mutual_information(table: Wide, seed: int) -> tuple[np.ndarray, None, dict[str, Any]]:
    return mutual_info_classif(table.train_x, table.train_y, random_state=seed), None, {}


METHODS: dict[str, Callable[[Wide, int], tuple[np.ndarray, float | None, dict[str, Any]]]] = {
    "DeepRClassifier": _deep_r,
    "L1 logistic regression": _l1_logistic,
    "ExtraTrees": _extra_trees,
    "SelectKBest, F test": _f_classif,
    "SelectKBest, mutual information": _mutual_information,
}


def judge(table: Wide, scores: np.ndarray) -> tuple[float, float]:
    """(precision at k, test accuracy of an SVM on the k columns that score highest).

    Columns that score the same come in the order in which they stand, which is random.
    """
    k = len(table.informative)
    chosen = np.argsort(-scores, kind="stable")[:k]
    model = make_pipeline(StandardScaler(), SVC()).fit(table.train_x[:, chosen], table.train_y)
    precision = len(table.informative.intersection(chosen.tolist())) / k
    return precision, model.score(table.test_x[:, chosen], table.test_y)


def run(tables: Sequence[str], seeds: Sequence[int], methods: Sequence[str]) -> list[dict[str, Any]]:
    lines = []
    for name in tables:
        made = [TABLES[name](seed) for seed in seeds]
        for method in methods:
            found: dict[str, list[Any]] = {"precision": [], "own": [], "svm": [], "settings": [], "seconds": []}
            for seed, table in zip(seeds, made, strict=True):
                began = time.perf_counter()
                scores, own, settings = METHODS[method](table, seed)
                found["seconds"].append(round(time.perf_counter() - began, 2))
                precision, svm = judge(table, scores)
                for what, value in (("precision", precision), ("own", own), ("svm", svm), ("settings", settings)):
                    found[what].append(value)
            shape = [len(made[0].train_y), made[0].train_x.shape[1], len(made[0].informative)]
            lines.append({"table": name, "shape": shape, "method": method, "seeds": list(seeds), **found})
            print(f"{name:<24} {method:<32} {_spread(found['precision'])}  {_spread(found['own'])}", flush=True)
    return lines


def _spread(values: Sequence[float | None]) -> str:
    given = [100 * value for value in values if value is not None]
    if not given:
        return "–"
    return f"{statistics.mean(given):.1f} ± {statistics.stdev(given) if len(given) > 1 else 0.0:.1f}"


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    text = [
        "Made by `python -m wirebound_lab.paper.wide_tables --out results/wide_tables`. Percent, mean ± standard",
        f"deviation over {len(lines[0]['seeds'])} seeds (data, split and method). Settings by 3-fold cross-validation on",
        "the training rows. Precision: share of the informative columns among the k ranked highest. SVM: an RBF SVM on",
        "those k columns, the same for all. For the probed data sets, all real columns count as informative, also those",
        "that say little. Seconds include the choice of settings; they are wall time, on a machine that may be shared.",
        "",
    ]
    for name in dict.fromkeys(line["table"] for line in lines):
        mine = [line for line in lines if line["table"] == name]
        rows, columns, k = mine[0]["shape"]
        text += [
            f"**{name}**: {rows} rows, {columns:,} columns, k = {k}",
            "",
            "| method | precision at k | test accuracy, own model | test accuracy, SVM | seconds |",
            "| --- | --- | --- | --- | --- |",
        ]
        for line in mine:
            seconds = statistics.mean(line["seconds"])
            text.append(
                f"| {line['method']} | {_spread(line['precision'])} | {_spread(line['own'])} | {_spread(line['svm'])} "
                f"| {seconds:.1f} |"
            )
        text.append("")
    return "\n".join(text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Informative columns of wide tables, found by the wiring.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", nargs="*", choices=tuple(TABLES), default=tuple(TABLES))
    parser.add_argument("--methods", nargs="*", choices=tuple(METHODS), default=tuple(METHODS))
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)  # of saga, whose coefficients have long settled in rank
    lines = run(options.tables, options.seeds, options.methods)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tables.json").write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    (options.out / "tables.md").write_text(markdown(lines), encoding="utf-8")
    print(f"tables: {options.out / 'tables.md'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
