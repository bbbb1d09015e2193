"""What users give an estimator, checked: parameters, rows, and how much each row counts, also by its class."""

from __future__ import annotations

import dataclasses
import itertools
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn.utils.validation as validation
from sklearn.model_selection import train_test_split

from wirebound.methods import METHODS, Method
from wirebound.methods.declaration import AUTO, NEWBORNS
from wirebound.nn.perceptron import ACTIVATIONS
from wirebound.nn.sparsify import SCOPES
from wirebound.optim.named import OPTIMIZERS, SCHEDULES
from wirebound.wiring.budget import read_allocation
from wirebound.wiring.draw import INITS

SMALLEST, SHARE = 500, 0.1  # connections, where neither connectivity nor budget is given
# What None stands for, with dense tables and with sparse rows: chosen on held-out data (results/wide for the second).
BY_INPUT = {"learning_rate": (0.01, 0.03), "l1": (0.1, 0.03), "standardize": (True, False)}

_KINDS: dict[str, tuple[Any, Any, str]] = {
    "int": (numbers.Integral, int, "a whole number"),
    "float": (numbers.Real, float, "a number"),
    "bool": ((bool, np.bool_), bool, "True or False"),
}
_CHOICES: dict[str, Iterable[str]] = {
    "scope": SCOPES, "newborns": NEWBORNS, "activation": ACTIVATIONS, "init": INITS, "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES, "engine": ("auto", "fused", "module"),
}  # fmt: skip
_RULES = (
    (("budget", "epochs", "batch_size", "rewire_every", "n_iter_no_change"), "a finite number >= 1", lambda v: v >= 1),
    (("weight_decay", "l1", "temperature", "tol"), "a finite number >= 0", lambda v: v >= 0),
    (("learning_rate", "final_lr"), "a finite number > 0", lambda v: v > 0),
    (("connectivity",), "in (0, 1]", lambda v: 0 < v <= 1),
    (("momentum",), "in [0, 1)", lambda v: 0 <= v < 1),
    (("validation_fraction",), "in (0, 1)", lambda v: 0 < v < 1),
)


def read_parameters(estimator: Any, inputs: int, outputs: int, nonzeros: int | None = None) -> dict[str, Any]:
    """All parameters by name, and ``sizes`` of the layers; settings of the method are among them.

    ``nonzeros``: of sparse rows to learn from; None for a dense table.
    """
    fields = {f.name: f.type.__name__ if isinstance(f.type, type) else str(f.type) for f in dataclasses.fields(estimator)}
    given = {name: _typed(name, kind, getattr(estimator, name)) for name, kind in fields.items()}
    for name, choices in {"method": METHODS, **_CHOICES}.items():
        if given[name] not in choices:
            raise ValueError(f"{name} (={given[name]!r}) must be one of {', '.join(choices)}")
    for names, rule, holds in _RULES:
        for name in names:
            value = given[name]
            if value is not None and value != AUTO and not (math.isfinite(value) and holds(value)):
                raise ValueError(f"{name} (={value}) must be {rule}")
    for name, values in BY_INPUT.items():
        given[name] = values[nonzeros is not None] if given[name] is None else given[name]
    if not isinstance(given["allocation"], str):
        raise ValueError(f"allocation (={given['allocation']!r}) must be a string: a rule, or counts with commas")
    given["allocation"] = read_allocation(given["allocation"])
    given["sizes"] = sizes = [inputs, *_hidden(given["hidden_layer_sizes"]), outputs]
    method = METHODS[given["method"]]
    # An α that is a share of Adam's step, as the default is, supposes that a newborn's first step has full length.
    given["newborn_moments"] = "layer" if given["l1"] == AUTO else "own"
    given |= _method_settings(method, given["method_settings"])
    if given["early_stopping"] and method.name == "pruning":
        why = "which has the number of connections asked for only at the end of training"
        raise ValueError(f"early_stopping (=True) cannot be used with method (='pruning'), {why}")
    if method.sized_by and given["connectivity"] is not None and given["budget"] is not None:
        raise ValueError(f"give connectivity (={given['connectivity']}) or budget (={given['budget']}), not both")
    if all(given.get(name) is None for name in ("connectivity", "budget", *method.sized_by)):
        possible = sum(a * b for a, b in itertools.pairwise(sizes))
        most = possible if nonzeros is None else nonzeros  # of a million columns, a tenth of the possible would be millions
        given["budget"] = min(possible, max(SMALLEST, round(SHARE * min(possible, most))))
    return given


def _typed(name: str, kind: str, value: Any) -> Any:
    """A number as one of type ``kind``, or an error that names it; what is no number stays as it is."""
    base, _, rest = kind.partition(" | ")
    others = rest.split(" | ")
    if base not in _KINDS or "tuple" in rest or (value is None and "None" in others) or (value == AUTO and "str" in others):
        return value
    wanted, convert, words = _KINDS[base]
    if not isinstance(value, wanted) or (base != "bool" and isinstance(value, bool | np.bool_)):
        raise ValueError(f"{name} (={value!r}) must be {words}")
    return convert(value)


def _hidden(sizes: Any) -> list[int]:
    each = list(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, str) else [sizes]
    if not all(isinstance(size, numbers.Integral) and not isinstance(size, bool) and int(size) >= 1 for size in each):
        raise ValueError(f"hidden_layer_sizes (={sizes!r}) must be whole numbers >= 1")
    return [int(size) for size in each]


def _method_settings(method: type[Method], given: Any) -> dict[str, Any]:
    """Further settings of the method, by the names that it declares."""
    if not isinstance(given, Mapping | None):
        raise ValueError(f"method_settings (={given!r}) must be None or a dict of setting to value")
    known = {setting.name: setting.type for setting in method.settings}
    if unknown := [name for name in given or {} if name not in known]:
        raise ValueError(f"method_settings names {unknown}, {method.name} has {', '.join(known) or 'none'}")
    return {name: _typed(name, known[name], value) for name, value in (given or {}).items()}


def validate(estimator: Any, X: Any, **checks: Any) -> Any:
    """X, or (X, y), checked as scikit-learn checks them; notes ``n_features_in_`` if ``reset``."""
    if checks.get("y", X) is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    if hasattr(validation, "validate_data"):  # since 1.6
        return validation.validate_data(estimator, X, **checks)
    return estimator._validate_data(X, **checks)


@dataclass(frozen=True)
class Examples:
    """Rows to learn from; weights that are None are all the same."""

    X: Any  # dense, or a SciPy matrix in CSR format
    y: np.ndarray  # class numbers [rows], labels 0 and 1 [rows, labels], or targets [rows, targets]
    sample_weight: np.ndarray | None = None  # how often a row counts, everywhere
    factors: np.ndarray | None = None  # weights of classes, in the loss alone: [rows] or [rows, labels]

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, chosen: np.ndarray) -> Examples:
        parts = (None if part is None else part[chosen] for part in (self.sample_weight, self.factors))
        return Examples(self.X[chosen], self.y[chosen], *parts)

    def loss_weights(self) -> np.ndarray | None:
        """What each row (or each label of it) counts in the loss, with mean 1; None if all the same."""
        both = self.factors if self.sample_weight is None else self.sample_weight
        if self.sample_weight is not None and self.factors is not None:
            both = self.sample_weight.reshape(-1, *[1] * (self.factors.ndim - 1)) * self.factors
        if both is None or both.max() == both.min() > 0:
            return None
        if not both.max() > 0:
            raise ValueError("sample_weight and class_weight must leave a weight that is not zero")
        both = both / both.max()
        return both / both.mean()


def kept_rows(X: Any, y: np.ndarray, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """X, y and checked weights, without the rows whose weight is 0: they are as if they had never been there."""
    if sample_weight is None:
        return X, y, None
    weights = validation._check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weights < 0).any():
        raise ValueError(f"sample_weight must be >= 0, the least is {weights.min():g}")
    if not weights.any():
        raise ValueError("sample_weight must hold at least one weight that is not zero")
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum()):
            raise ValueError("sample_weight must have a finite sum")
    if not (kept := weights > 0).all():
        X, y, weights = X[kept], y[kept], weights[kept]
    return X, y, None if (weights == 1).all() else weights


def held_out(examples: Examples, fraction: float, classes: np.ndarray | None, seed: int) -> tuple[Examples, Examples]:
    """(rows to train on, rows to validate with), the second a ``fraction`` of all, with ``classes`` in equal shares."""
    rows = np.arange(len(examples))
    try:
        train, held = train_test_split(rows, test_size=fraction, random_state=seed % (1 << 32), stratify=classes)
    except ValueError as error:
        raise ValueError(f"early_stopping cannot hold out validation_fraction (={fraction}) of the rows: {error}") from None
    if len(held) < 2:
        found = f"validation_fraction (={fraction}) of {len(rows)} is {len(held)}"
        raise ValueError(f"early_stopping must hold out at least 2 rows, {found}: give a larger fraction or more rows")
    return examples.rows(train), examples.rows(held)


def class_factors(class_weight: Any, codes: np.ndarray, classes: list[Any], weights: np.ndarray | None) -> Any:
    """The weight of each row's class, [rows], or of each label of it, [rows, labels]; None where all count the same.

    ``codes`` are numbers of ``classes``, [rows] or [rows, labels]; ``weights``: how often each row counts.
    """
    if class_weight is None:
        return None
    if codes.ndim == 1:
        return _of_classes(class_weight, codes, classes, weights)[codes]
    labels = codes.shape[1]
    each = class_weight if isinstance(class_weight, list) else [class_weight] * labels
    if len(each) != labels:
        raise ValueError(f"class_weight (={class_weight!r}) must have one entry for each of {labels} labels")
    return np.stack([_of_classes(each[i], codes[:, i], classes, weights)[codes[:, i]] for i in range(labels)], axis=1)


def _of_classes(class_weight: Any, codes: np.ndarray, classes: list[Any], weights: np.ndarray | None) -> np.ndarray:
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(codes, weights, len(classes))
        present = counts > 0
        return np.divide(counts.sum() / present.sum(), counts, out=np.ones(len(classes)), where=present)
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight (={class_weight!r}) must be None, 'balanced', or a dict of class to weight")
    missing = [name for name in classes if name not in class_weight]
    unknown = [name for name in class_weight if name not in classes]
    if missing and unknown:  # else a class that happens not to be in this part of the data
        raise ValueError(f"class_weight names {unknown}, which are not among the classes, and leaves out {missing}")
    for name, value in class_weight.items():
        if not (isinstance(value, numbers.Real) and math.isfinite(value) and float(value) >= 0):
            raise ValueError(f"class_weight of {name!r} (={value!r}) must be a finite number >= 0")
    return np.array([float(class_weight.get(name, 1.0)) for name in classes])
