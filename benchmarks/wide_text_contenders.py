"""The contenders of ``wide_text.py``, each trained in a process of its own, whose memory is measured from outside.

    python benchmarks/wide_text_contenders.py FOLDER '{"name": "SGDClassifier", "part": "test", "seed": 0, "settings": {}}'

prints accuracy, weights that are not 0 and CPU seconds as JSON. FOLDER holds the rows as ``wide_text.py`` wrote them.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

FEWER = 2**12  # columns for the contender that cannot take them all

Fitted = tuple[Callable[[Any], np.ndarray], int, dict[str, Any]]  # predict, weights that are not 0, what else there is to say


def write_rows(folder: Path, part: str, X: Any, y: np.ndarray) -> None:
    for name, array in (("data", X.data), ("indices", X.indices), ("indptr", X.indptr), ("y", y), ("shape", np.array(X.shape))):
        np.save(folder / f"{part}-{name}.npy", array)


def read_rows(folder: Path, part: str) -> tuple[Any, np.ndarray]:
    data, indices, indptr, y, shape = (
        np.load(folder / f"{part}-{name}.npy") for name in ("data", "indices", "indptr", "y", "shape")
    )
    return csr_matrix((data, indices, indptr), shape=tuple(shape)), y


def _deep_r(X: Any, y: np.ndarray, seed: int, **settings: Any) -> Fitted:
    import wirebound as wb
    from wirebound.sklearn import DeepRClassifier

    model = DeepRClassifier(random_state=seed, **settings).fit(X, y)
    # The fused engine counts the active connections after every step and raises unless there are K.
    active = sum(wiring.active for wiring in wb.wirings(model.model_))
    assert active == model.budget_
    for wiring in wb.wirings(model.model_):
        wiring.check()
    used = sum(int(np.count_nonzero(layer.weights)) for layer in model.to_network().weighted)
    found = {"budget": model.budget_, "steps": model.n_steps_, "inputs": int((model.feature_importances_ > 0).sum())}
    return model.predict, used, found


def _coefficients(model: Any, X: Any, y: np.ndarray) -> Fitted:
    model.fit(X, y)
    used = int(np.count_nonzero(model.coef_))
    return model.predict, used, {"inputs": int((model.coef_ != 0).any(0).sum())}


def _sgd(X: Any, y: np.ndarray, seed: int, **settings: Any) -> Fitted:
    from sklearn.linear_model import SGDClassifier

    return _coefficients(SGDClassifier(loss="log_loss", random_state=seed, **settings), X, y)


def _l1_logistic(X: Any, y: np.ndarray, seed: int, **settings: Any) -> Fitted:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    l1 = {"l1_ratio": 1.0} if LogisticRegression().penalty == "deprecated" else {"penalty": "l1"}
    model = OneVsRestClassifier(LogisticRegression(solver="liblinear", random_state=seed, **l1, **settings)).fit(X, y)
    used = sum(int(np.count_nonzero(one.coef_)) for one in model.estimators_)
    inputs = np.any([one.coef_[0] != 0 for one in model.estimators_], axis=0)
    return model.predict, used, {"inputs": int(inputs.sum())}


def _mlp(X: Any, y: np.ndarray, seed: int, **settings: Any) -> Fitted:
    from sklearn.feature_selection import SelectKBest, chi2
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline

    network = MLPClassifier((128,), random_state=seed, **settings)
    model = make_pipeline(SelectKBest(chi2, k=min(FEWER, X.shape[1])), network).fit(X, y)
    return model.predict, sum(w.size for w in network.coefs_), {"inputs": network.coefs_[0].shape[0]}


def _nothing(X: Any, y: np.ndarray, seed: int, torch: bool = False) -> Fitted:
    """What the process needs before it learns anything."""
    import sklearn.linear_model

    if torch:
        import wirebound.sklearn  # noqa: F401
    return lambda X: np.full(X.shape[0], np.bincount(y).argmax()), 0, {"version": sklearn.__version__}


CONTENDERS: dict[str, Callable[..., Fitted]] = {
    "nothing": _nothing, "DeepRClassifier": _deep_r, "SGDClassifier": _sgd, "LogisticRegression, l1": _l1_logistic,
    "MLPClassifier": _mlp,
}  # fmt: skip


def measure(folder: Path, name: str, part: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train on the training rows (``part`` "test") or on those but the held-out ones (``part`` "held"), and judge on the part."""
    X, y = read_rows(folder, "train" if part == "test" else "rest")
    warnings.simplefilter("ignore")  # those that did not converge in their number of passes
    began, wall = time.process_time(), time.perf_counter()
    predict, used, more = CONTENDERS[name](X, y, seed, **settings)
    seconds, wall = time.process_time() - began, time.perf_counter() - wall
    del X
    judged_x, judged_y = read_rows(folder, part)
    began = time.process_time()
    accuracy = float((predict(judged_x) == judged_y).mean())
    predicting = time.process_time() - began
    times = {"seconds": round(seconds, 2), "wall": round(wall, 2), "predict_seconds": round(predicting, 3)}
    return {"accuracy": accuracy, "weights": used, **times, **more}


if __name__ == "__main__":
    asked = json.loads(sys.argv[2])
    if isinstance(asked["settings"].get("hidden_layer_sizes"), list):
        asked["settings"]["hidden_layer_sizes"] = tuple(asked["settings"]["hidden_layer_sizes"])
    print(json.dumps(measure(Path(sys.argv[1]), **asked)), flush=True)
    sys.stdin.read()  # until the other process has measured this one
