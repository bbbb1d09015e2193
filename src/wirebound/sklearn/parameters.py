"""The parameters of an estimator, checked, with numbers of any library (``np.int64``) as Python's own."""

from __future__ import annotations

import dataclasses
import itertools
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from wirebound.methods import METHODS, Method
from wirebound.methods.declaration import NEWBORNS
from wirebound.nn.perceptron import ACTIVATIONS
from wirebound.nn.sparsify import SCOPES
from wirebound.optim.named import OPTIMIZERS, SCHEDULES
from wirebound.wiring.budget import read_allocation
from wirebound.wiring.draw import INITS

STEPS = 1500  # of a fit whose number of epochs is not given, if that is between
EPOCHS = (5, 200)
SMALLEST = 500  # connections, where neither connectivity nor budget is given
SHARE = 0.1

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


def read_parameters(estimator: Any, inputs: int, outputs: int) -> dict[str, Any]:
    """All parameters by name, and ``sizes`` of the layers; settings of the method are among them."""
    fields = {field.name: str(field.type) for field in dataclasses.fields(estimator)}
    given = {name: _typed(name, kind, getattr(estimator, name)) for name, kind in fields.items()}
    for name, choices in {"method": METHODS, **_CHOICES}.items():
        if given[name] not in choices:
            raise ValueError(f"{name} (={given[name]!r}) must be one of {', '.join(choices)}")
    for names, rule, holds in _RULES:
        for name in names:
            value = given[name]
            if value is not None and not (math.isfinite(value) and holds(value)):
                raise ValueError(f"{name} (={value}) must be {rule}")
    if not isinstance(given["allocation"], str):
        raise ValueError(f"allocation (={given['allocation']!r}) must be a string: a rule, or counts with commas")
    given["allocation"] = read_allocation(given["allocation"])
    given["sizes"] = sizes = [inputs, *_hidden(given["hidden_layer_sizes"]), outputs]
    method = METHODS[given["method"]]
    given |= _method_settings(method, given["method_settings"])
    if given["early_stopping"] and method.name == "pruning":
        raise ValueError(
            "early_stopping (=True) cannot be used with method (='pruning'), which has the number of connections asked "
            "for only at the end of training"
        )
    if method.sized_by and given["connectivity"] is not None and given["budget"] is not None:
        raise ValueError(f"give connectivity (={given['connectivity']}) or budget (={given['budget']}), not both")
    if all(given.get(name) is None for name in ("connectivity", "budget", *method.sized_by)):
        possible = sum(a * b for a, b in itertools.pairwise(sizes))
        given["budget"] = min(possible, max(SMALLEST, round(SHARE * possible)))
    return given


def default_epochs(examples: int, batch_size: int) -> int:
    """As many as make about ``STEPS`` steps."""
    return min(max(round(STEPS / -(-examples // batch_size)), EPOCHS[0]), EPOCHS[1])


def _typed(name: str, kind: str, value: Any) -> Any:
    """A number as one of type ``kind``, or an error that names it; what is no number stays as it is."""
    base, _, rest = kind.partition(" | ")
    if base not in _KINDS or "tuple" in rest or (value is None and rest == "None"):
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
    unknown = [name for name in given or {} if name not in known]
    if unknown:
        raise ValueError(f"method_settings names {unknown}, {method.name} has {', '.join(known) or 'none'}")
    return {name: _typed(name, known[name], value) for name, value in (given or {}).items()}
