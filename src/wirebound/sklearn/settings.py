"""The settings of an estimator as those of a run, checked under the names that its user knows."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from wirebound_lab.run.config import ConfigError, TrainConfig

STEPS = 1500  # of a fit whose number of epochs is not given, if that is between
EPOCHS = (5, 200)
SMALLEST = 500  # connections, where neither connectivity nor budget is given
SHARE = 0.1
_WHOLE = ("budget", "epochs", "batch_size", "rewire_every", "n_iter_no_change")
_REAL = (
    *("connectivity", "learning_rate", "final_lr", "momentum", "weight_decay", "l1", "temperature"),
    *("validation_fraction", "tol"),
)
_FLAGS = ("bias", "standardize", "early_stopping")
_OPTIONAL = ("budget", "epochs", "batch_size", "connectivity", "temperature")
_AS_IN_A_RUN = (
    *("method", "scope", "allocation", "newborns", "activation", "init", "optimizer", "schedule", "engine"),
    *("connectivity", "budget", "bias", "final_lr", "momentum", "weight_decay", "l1", "temperature", "rewire_every"),
)


def read_config(estimator: Any, examples: int, inputs: int, outputs: int, seed: int) -> TrainConfig:
    """The settings of a fit to so many examples."""
    given = _numbers(estimator)
    hidden = _hidden(estimator.hidden_layer_sizes)
    batch = 32 if given["batch_size"] is None else given["batch_size"]
    epochs = given["epochs"]
    if epochs is None:
        epochs = min(max(round(STEPS / -(-examples // max(1, batch))), EPOCHS[0]), EPOCHS[1])
    given |= {"hidden": hidden, "epochs": epochs, "batch_size": batch, "lr": given["learning_rate"], "seed": seed}
    names = (*_AS_IN_A_RUN, "hidden", "epochs", "batch_size", "lr", "seed")
    config = TrainConfig(**{name: given[name] if name in given else getattr(estimator, name) for name in names})
    if config.connectivity is None and config.budget is None:
        config.connectivity = SHARE  # to be checked with the others
        config.check()
        possible = sum(a * b for a, b in itertools.pairwise([inputs, *hidden, outputs]))
        config.connectivity, config.budget = None, min(possible, max(SMALLEST, round(SHARE * possible)))
    if given["early_stopping"] and config.method == "pruning":
        raise ConfigError(
            "early_stopping (=True) cannot be used with method (='pruning'), which has the number of connections asked "
            "for only at the end of training"
        )
    return config.check()


def _numbers(estimator: Any) -> dict[str, Any]:
    """Numbers of any library (``np.int64``) as Python's own, checked where the run does not know them by this name."""
    found: dict[str, Any] = {}
    for names, kind, word in (
        (_WHOLE, numbers.Integral, "a whole number"),
        (_REAL, numbers.Real, "a number"),
        (_FLAGS, None, "True or False"),
    ):
        for name in names:
            value = getattr(estimator, name)
            if value is None and name in _OPTIONAL:
                found[name] = None
                continue
            flag = isinstance(value, bool | np.bool_)
            if not (flag if kind is None else isinstance(value, kind) and not flag):
                raise ConfigError(f"{name} (={value!r}) must be {word}")
            found[name] = bool(value) if kind is None else int(value) if kind is numbers.Integral else float(value)
    if not isinstance(estimator.allocation, str):
        raise ConfigError(f"allocation (={estimator.allocation!r}) must be a string: a rule, or counts with commas")
    if not (math.isfinite(found["learning_rate"]) and found["learning_rate"] > 0):
        raise ConfigError(f"learning_rate (={found['learning_rate']}) must be a finite number > 0")
    if not 0 < found["validation_fraction"] < 1:
        raise ConfigError(f"validation_fraction (={found['validation_fraction']}) must be in (0, 1)")
    if not found["tol"] >= 0:
        raise ConfigError(f"tol (={found['tol']}) must be >= 0")
    if found["n_iter_no_change"] < 1:
        raise ConfigError(f"n_iter_no_change (={found['n_iter_no_change']}) must be >= 1")
    return found


def _hidden(sizes: Any) -> list[int]:
    each = list(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, str) else [sizes]
    if not all(isinstance(size, numbers.Integral) and not isinstance(size, bool) and int(size) >= 1 for size in each):
        raise ConfigError(f"hidden_layer_sizes (={sizes!r}) must be whole numbers >= 1")
    return [int(size) for size in each]
