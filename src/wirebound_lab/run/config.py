"""The settings of a training run: each is explained once, here, for the command line and the docs.

Defaults are the paper's MNIST settings (appendix A; FACTS of the authors' code where the text is silent).
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirebound.methods import METHODS
from wirebound.methods.deep_r import NEWBORNS
from wirebound.methods.l1_shrinkage import BEST_L1
from wirebound.nn.sparsify import SCOPES
from wirebound.wiring.budget import RULES, read_allocation
from wirebound.wiring.init import INITS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop")
SCHEDULES = ("constant", "exponential", "cosine", "linear")
ACTIVATIONS = ("relu", "tanh", "sigmoid")
ENGINES = ("auto", "fused", "module")
ON_NAN = ("stop", "skip")
_LARGEST = 1 << 63  # of a whole number
UNSIZED = ("dense", "l1-shrinkage")  # methods that nobody tells how many connections there will be
# Where a method's settings in the paper are others than those of DEEP R.
METHOD_DEFAULTS: dict[str, dict[str, Any]] = {
    "soft-deep-r": {"l1": 1e-5, "noise": 1e-5 / 3},
    "l1-shrinkage": {"l1": BEST_L1},
}


class ConfigError(ValueError):
    """A setting is wrong; the message says the rule, the name and the value."""


def _setting(default: Any, help: str, **extra: Any) -> Any:
    metadata = {"help": help, **extra}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass
class TrainConfig:
    """One training run."""

    data: str = _setting("mnist", "data set: mnist, digits, or cifar10 (flattened)")
    data_path: str | None = _setting(None, "folder that holds the data set (default: WIREBOUND_DATA, the cache, the web)")
    validation: int = _setting(0, "examples of the training data to hold out and report on instead of the test set")
    method: str = _setting("deep-r", "training method", choices=tuple(METHODS))
    connectivity: float | None = _setting(None, "share of the possible connections that may exist, in (0, 1]")
    budget: int | None = _setting(None, "number of connections, instead of connectivity")
    scope: str = _setting("global", "one budget for the network, or one for each layer", choices=SCOPES)
    allocation: str = _setting(
        "paper",
        f"how the budget is shared out at the start: {', '.join(RULES)}; or the count (or connectivity) of each layer "
        "with commas between them",
    )
    newborns: str = _setting(
        "share", "layer of a newborn in a global budget: uniform over all dormant, or by initial share", choices=NEWBORNS
    )
    hidden: list[int] = _setting([300, 100], "sizes of the hidden layers")
    activation: str = _setting("relu", "activation of the hidden layers", choices=ACTIVATIONS)
    bias: bool = _setting(False, "give layers biases (not counted in the budget)")
    init: str = _setting("dense-fan-in", "scale of the first weights", choices=INITS)
    gain: float = _setting(1.0, "factor on the scale of the first weights")
    epochs: int = _setting(10, "passes over the training data")
    batch_size: int = _setting(10, "examples in a step")
    optimizer: str = _setting("sgd", "optimiser", choices=OPTIMIZERS)
    lr: float = _setting(0.05, "learning rate η at the start")
    schedule: str = _setting("constant", "how η changes over the run", choices=SCHEDULES)
    final_lr: float = _setting(0.01, "η at the end as a share of lr (exponential, cosine, linear)")
    momentum: float = _setting(0.9, "momentum (optimisers momentum, nesterov and rmsprop)")
    eps: float = _setting(1e-8, "ε of adam, adamw and rmsprop")
    weight_decay: float = _setting(0.0, "ℓ2 penalty (decoupled for adamw)")
    l1: float = _setting(1e-4, "α, the ℓ1 pull (other methods than deep-r have defaults of their own, docs/settings.md)")
    noise: float = _setting(1e-6, "g, the noise in units of η: temperature T = η g²/2")
    temperature: float | None = _setting(None, "temperature T itself, instead of noise")
    rewire_every: int = _setting(1, "steps between rewirings")
    fraction: float = _setting(0.3, "share of the connections that set (ζ) and rigl (α, at the start) replace at a time")
    replace_every: int | None = _setting(None, "steps between replacements (default: an epoch for set, 100 for rigl)")
    replace_until: float = _setting(0.75, "share of the run after which rigl replaces no more")
    theta_min: float | None = _setting(None, "soft-deep-r: where dormant θ stop, < 0 (default: by connectivity)")
    rate: float = _setting(1e-5, "constant-rate: probability that a dormant connection is re-activated in a step")
    quality: float | None = _setting(None, "pruning: q of the paper, instead of connectivity")
    max_fan_in: int | None = _setting(None, "most connections of an output neuron (sparse methods)")
    max_fan_out: int | None = _setting(None, "most connections of an input neuron (sparse methods)")
    dale: float | None = _setting(None, "share of the input neurons that are excitatory, the others inhibiting")
    seed: int = _setting(0, "decides connections, weights, noise and the order of the data")
    engine: str = _setting("auto", "fused native steps, ordinary modules, or whichever applies", choices=ENGINES)
    threads: int | None = _setting(None, "threads of torch and of the kernels (default: torch's)")
    on_nan: str = _setting("stop", "when a step is not finite: stop the run, or skip the step", choices=ON_NAN)
    checkpoint_every: int | None = _setting(None, "steps between checkpoints, at least")
    checkpoint_seconds: float = _setting(30.0, "seconds between checkpoints, at least; 0 for none by time")

    def check(self) -> TrainConfig:
        """Raise ``ConfigError`` at the first setting that breaks its rule."""
        for field in dataclasses.fields(self):
            choices = field.metadata.get("choices")
            value = getattr(self, field.name)
            if choices and value not in choices:
                raise ConfigError(f"{field.name} (={value!r}) must be one of {', '.join(choices)}")
        if self.method not in UNSIZED:
            if self.connectivity is None and self.budget is None and not self._sized_otherwise():
                raise ConfigError(f"method (={self.method!r}) needs connectivity or budget")
            if self.connectivity is not None and self.budget is not None:
                raise ConfigError(f"give connectivity (={self.connectivity}) or budget (={self.budget}), not both")
        if self.connectivity is not None and not 0 < self.connectivity <= 1:
            raise ConfigError(f"connectivity (={self.connectivity}) must be in (0, 1]")
        try:
            read_allocation(self.allocation)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._at_least("budget", 1)
        for name in ("epochs", "batch_size", "rewire_every", "replace_every", "threads", "checkpoint_every"):
            self._at_least(name, 1)
        for name in ("max_fan_in", "max_fan_out", "dale"):
            if getattr(self, name) is not None and METHODS[self.method].plain:
                raise ConfigError(f"{name} (={getattr(self, name)}) must not be given for {self.method}, which has no wiring")
        self._at_least("max_fan_in", 1)
        self._at_least("max_fan_out", 1)
        if self.dale is not None and not 0 <= self.dale <= 1:
            raise ConfigError(f"dale (={self.dale}) must be in [0, 1]")
        for name in ("validation", "l1", "noise", "weight_decay", "temperature", "seed", "checkpoint_seconds"):
            self._at_least(name, 0)
        self._at_least("quality", 0)
        if self.method == "pruning" and self.quality is not None and (self.connectivity or self.budget):
            raise ConfigError(f"give quality (={self.quality}), or connectivity or budget, not both")
        if not 0 <= self.rate <= 1:
            raise ConfigError(f"rate (={self.rate}) must be in [0, 1]")
        if self.theta_min is not None and not (math.isfinite(self.theta_min) and self.theta_min < 0):
            raise ConfigError(f"theta_min (={self.theta_min}) must be a finite number < 0")
        for name in ("lr", "gain", "eps", "final_lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} (={value}) must be a finite number > 0")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum (={self.momentum}) must be in [0, 1)")
        for name in ("fraction", "replace_until"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} (={getattr(self, name)}) must be in [0, 1]")
        if any(size < 1 for size in self.hidden):
            raise ConfigError(f"hidden (={self.hidden}) must be sizes >= 1")
        return self

    def _sized_otherwise(self) -> bool:
        """Whether a setting of the method's own says how many connections there will be."""
        own = {"soft-deep-r": self.theta_min, "pruning": self.quality}
        return own.get(self.method) is not None

    def _at_least(self, name: str, minimum: int) -> None:
        value = getattr(self, name)
        if value is not None and not (math.isfinite(value) and value >= minimum):
            raise ConfigError(f"{name} (={value}) must be a finite number >= {minimum}")

    def lr_factor(self, progress: float) -> float:
        """η at ``progress`` (0 at the first step, 1 at the last) as a share of ``lr``."""
        if self.schedule == "exponential":
            return self.final_lr**progress
        if self.schedule == "cosine":
            return self.final_lr + (1 - self.final_lr) * (1 + math.cos(math.pi * progress)) / 2
        if self.schedule == "linear":
            return 1 + (self.final_lr - 1) * progress
        return 1.0

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON or TOML file, by name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file (={path}) cannot be read: {error}") from error
    try:
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise ConfigError(f"config file (={path}) is not valid {kind}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"config file (={path}) must hold one table of settings")
    return found


def make_config(*sources: Mapping[str, Any]) -> TrainConfig:
    """Settings from several places, later ones first in rank; names and types are checked."""
    fields = {field.name: field for field in dataclasses.fields(TrainConfig)}
    merged: dict[str, Any] = {}
    for source in sources:
        if "budget" in source and source["budget"] is not None:
            merged.pop("connectivity", None)
        if "connectivity" in source and source["connectivity"] is not None:
            merged.pop("budget", None)
        for name, value in source.items():
            if name not in fields:
                raise ConfigError(f"unknown setting {name!r}; known are {', '.join(fields)}")
            merged[name] = _typed(name, str(fields[name].type), value)
    return TrainConfig(**{**METHOD_DEFAULTS.get(merged.get("method", ""), {}), **merged}).check()


def _typed(name: str, kind: str, value: Any) -> Any:
    if value is None and "None" in kind:
        return None
    wanted = kind.replace(" | None", "")
    numbers = value if isinstance(value, list) else [value]
    if any(isinstance(n, int) and not -_LARGEST <= n < _LARGEST for n in numbers):
        raise ConfigError(f"{name} must be a number in [-2^63, 2^63)")
    if wanted == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if wanted == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if wanted == "bool" and isinstance(value, bool):
        return value
    if wanted == "str" and isinstance(value, str):
        return value
    if wanted == "list[int]" and isinstance(value, list) and all(type(v) is int for v in value):
        return value
    shown = repr(value) if isinstance(value, str | int | float | list | dict | None) else f"a {type(value).__name__}"
    raise ConfigError(f"{name} (={shown if len(shown) <= 80 else shown[:77] + '...'}) must be {wanted}")
