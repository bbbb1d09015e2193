"""Wide tables: does the wiring find the informative columns? Against scikit-learn's own selectors, several seeds.

    python benchmarks/wide_tables.py --out results/wide_tables

A few hundred rows, two thousand columns, of which few matter and it is known which: three generated problems, and data
sets that ship with scikit-learn, widened by probes (columns of the data set with their rows shuffled, so that each has
the distribution of a real column and says nothing). Settings are chosen by cross-validation on the training rows only.

For each method: the share of informative columns among the k that it ranks highest (k is the number of informative
ones), the test accuracy of its own model, and that of one classifier for all, an RBF SVM on those k columns.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

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
from wirebound_lab.paper.study import study_parser, write_study
from wirebound_lab.tables import deviation, markdown_table, plus_minus

SEEDS = (0, 1, 2)
ROWS, TEST_ROWS, COLUMNS = 300, 2000, 2000
GRID: dict[str, list[Any]] = {"budget": [300, 1000], "l1": [0.1, 0.3, 0.7, 0.9]}  # of DEEP R


class Wide(NamedTuple):
    """One table, split, with the columns that matter."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    informative: frozenset[int]


# Tables: columns, classes, and how many of the first columns matter
Made = tuple[np.ndarray, np.ndarray, int]
Rng = np.random.Generator


def _linear(rng: Rng, seed: int) -> Made:
    """Ten columns that add up, each with a weight of 1 or -1; 5 % of the labels are wrong."""
    X = rng.normal(size=(ROWS + TEST_ROWS, COLUMNS))
    y = (X[:, :10] @ rng.choice([-1.0, 1.0], 10) > 0) ^ (rng.random(len(X)) < 0.05)
    return X, y.astype(int), 10


def _clusters(rng: Rng, seed: int) -> Made:
    """scikit-learn's make_classification: two clusters for each of two classes, in ten dimensions."""
    settings = {"n_informative": 10, "n_redundant": 0, "class_sep": 1.5, "shuffle": False, "random_state": seed}
    return *make_classification(ROWS + TEST_ROWS, COLUMNS, **settings), 10


def _squares(rng: Rng, seed: int) -> Made:
    """Inside or outside of a sphere in four dimensions: no column differs in its mean between the classes."""
    X = rng.normal(size=(ROWS + TEST_ROWS, COLUMNS))
    distance = (X[:, :4] ** 2).sum(1)
    return X, (distance > np.median(distance)).astype(int), 4


def _with_probes(load: Callable[..., tuple[np.ndarray, np.ndarray]], rng: Rng, seed: int) -> Made:
    X, y = load(return_X_y=True)
    X = X[:, X.std(0) > 0]
    real = X.shape[1]
    probes = [rng.permutation(X[:, rng.integers(real)]) for _ in range(COLUMNS - real)]
    return np.column_stack([X, *probes]), y, real


_REAL = {"breast cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}
TABLES: dict[str, Callable[[Rng, int], Made]] = {"linear": _linear, "clusters": _clusters, "squares": _squares}
TABLES |= {f"{name} + probes": partial(_with_probes, load) for name, load in _REAL.items()}


def make_table(name: str, seed: int) -> Wide:
    """Columns in random order, rows split; of a real data set, at most half of them are for training."""
    rng = np.random.default_rng(seed)
    X, y, informative = TABLES[name](rng, seed)
    order = rng.permutation(X.shape[1])
    rows = min(ROWS, len(y) // 2)
    train_x, test_x, train_y, test_y = train_test_split(X[:, order], y, train_size=rows, stratify=y, random_state=seed)
    return Wide(train_x, train_y, test_x, test_y, frozenset(np.flatnonzero(order < informative).tolist()))


# Methods: the score of each column, the test accuracy of the method's own model, if it has one, and what was chosen
Scored = tuple[np.ndarray, float | None, dict[str, Any]]


def _search(model: Any, grid: dict[str, list[Any]], table: Wide, seed: int) -> Scored:
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    found = GridSearchCV(model, grid, cv=folds).fit(table.train_x, table.train_y)
    best = found.best_estimator_
    scores = best.feature_importances_ if hasattr(best, "feature_importances_") else np.abs(best[-1].coef_).sum(0)
    return scores, found.score(table.test_x, table.test_y), found.best_params_


def _l1_logistic(table: Wide, seed: int) -> Scored:
    several = len(np.unique(table.train_y)) > 2
    # liblinear is fast and takes two classes; saga takes several.
    settings = {"solver": "saga", "max_iter": 100} if several else {"solver": "liblinear"}
    # scikit-learn 1.8 renamed the choice of the penalty.
    l1 = {"l1_ratio": 1.0} if LogisticRegression().penalty == "deprecated" else {"penalty": "l1"}
    model = make_pipeline(StandardScaler(), LogisticRegression(random_state=seed, **l1, **settings))
    return _search(model, {"logisticregression__C": [0.03, 0.1, 0.3, 1.0, 3.0]}, table, seed)


_TREES = {"max_features": ["sqrt", 0.1]}
METHODS: dict[str, Callable[[Wide, int], Scored]] = {
    "DeepRClassifier": lambda t, seed: _search(DeepRClassifier((20,), random_state=seed), GRID, t, seed),
    "L1 logistic regression": _l1_logistic,
    "ExtraTrees": lambda t, seed: _search(ExtraTreesClassifier(300, random_state=seed), _TREES, t, seed),
    "SelectKBest, F test": lambda t, seed: (np.nan_to_num(f_classif(t.train_x, t.train_y)[0]), None, {}),
    "SelectKBest, mutual information": lambda t, seed: (
        mutual_info_classif(t.train_x, t.train_y, random_state=seed), None, {},
    ),
}  # fmt: skip


def judge(table: Wide, scores: np.ndarray) -> tuple[float, float]:
    """(precision at k, test accuracy of an SVM on the k columns that score highest; ties in their random order)."""
    k = len(table.informative)
    chosen = np.argsort(-scores, kind="stable")[:k]
    model = make_pipeline(StandardScaler(), SVC()).fit(table.train_x[:, chosen], table.train_y)
    precision = len(table.informative.intersection(chosen.tolist())) / k
    return precision, model.score(table.test_x[:, chosen], table.test_y)


def run(tables: Sequence[str], seeds: Sequence[int], methods: Sequence[str]) -> list[dict[str, Any]]:
    lines = []
    for name in tables:
        made = [make_table(name, seed) for seed in seeds]
        shape = [len(made[0].train_y), made[0].train_x.shape[1], len(made[0].informative)]
        for method in methods:
            cells = []
            for seed, table in zip(seeds, made, strict=True):
                began = time.perf_counter()
                scores, own, settings = METHODS[method](table, seed)
                seconds = round(time.perf_counter() - began, 2)
                precision, svm = judge(table, scores)
                cells.append({"precision": precision, "own": own, "svm": svm, "settings": settings, "seconds": seconds})
            found: dict[str, list[Any]] = {key: [cell[key] for cell in cells] for key in cells[0]}
            lines.append({"table": name, "shape": shape, "method": method, "seeds": list(seeds), **found})
            print(f"{name:<24} {method:<32} {_spread(found['precision'])}  {_spread(found['own'])}", flush=True)
    return lines


def _spread(values: Sequence[float | None]) -> str:
    given = [100 * value for value in values if value is not None]
    return plus_minus(statistics.mean(given), deviation(given) or 0.0, 1) if given else "–"


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        "Made by `python benchmarks/wide_tables.py --out results/wide_tables`. Percent, mean ± standard\n"
        f"deviation over {len(lines[0]['seeds'])} seeds (data, split and method). Settings by 3-fold cross-validation on\n"
        "the training rows. Precision: share of the informative columns among the k ranked highest. SVM: an RBF SVM on\n"
        "those k columns, the same for all. For the probed data sets, all real columns count as informative, also those\n"
        "that say little. Seconds include the choice of settings; they are wall time, on a machine that may be shared.\n"
    ]
    columns = ("method", "precision at k", "test accuracy, own model", "test accuracy, SVM", "seconds")
    for name in dict.fromkeys(line["table"] for line in lines):
        mine = [line for line in lines if line["table"] == name]
        rows, width, k = mine[0]["shape"]
        parts.append(f"**{name}**: {rows} rows, {width:,} columns, k = {k}\n")
        cells = []
        for line in mine:
            spreads = (_spread(line[key]) for key in ("precision", "own", "svm"))
            cells.append([line["method"], *spreads, f"{statistics.mean(line['seconds']):.1f}"])
        parts.append(markdown_table(columns, cells) + "\n")
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("Informative columns of wide tables, found by the wiring.")
    parser.add_argument("--tables", nargs="*", choices=tuple(TABLES), default=tuple(TABLES))
    parser.add_argument("--methods", nargs="*", choices=tuple(METHODS), default=tuple(METHODS))
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)  # of saga, whose coefficients have long settled in rank
    lines = run(options.tables, options.seeds, options.methods)
    write_study(options.out, "tables", lines, markdown(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
