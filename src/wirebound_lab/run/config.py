"""The settings of a run: those that every run has, those of its task and those of its method, each declared once.

The command line, settings files, sweeps and docs read the declarations. Defaults are the paper's, or its authors' code's.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirebound.methods import METHODS, Setting
from wirebound.optim.named import OPTIMIZERS, SCHEDULES

if TYPE_CHECKING:
    from wirebound_lab.tasks.task import Task

PAPER_DECAY_EPOCHS = 350  # of the schedule "paper", which only some tasks have
LEAST_WARM = 0.01  # η of the first step of a warm-up, as a share of lr
_LARGEST = 1 << 63  # of a whole number
TASK, METHOD = "perceptron", "deep-r"  # where nothing else is said

RUN_SETTINGS = (
    Setting("task", "str", TASK, "what is trained"),
    Setting("method", "str", METHOD, "training method"),
    Setting("connectivity", "float | None", None, "share of the possible connections that may exist, in (0, 1]", above=0, most=1),
    Setting("budget", "int | None", None, "number of connections, instead of connectivity", least=1),
    Setting("data_path", "str | None", None, "folder that holds the data set (default: WIREBOUND_DATA, the cache, the web)"),
    Setting("validation", "int", 0, "examples of the training data to hold out and report on instead of the test set", least=0),
    Setting("epochs", "int", 10, "passes over the training data", least=1),
    Setting("batch_size", "int", 10, "examples in a step", least=1),
    Setting("optimizer", "str", "sgd", "optimiser", choices=tuple(OPTIMIZERS)),
    Setting("lr", "float", 0.05, "learning rate η at the start", above=0),
    Setting("schedule", "str", "constant", "how η changes over the run", choices=tuple(SCHEDULES)),
    Setting("final_lr", "float", 0.01, "η at the end as a share of lr (exponential, cosine, linear)", least=0),
    Setting("momentum", "float", 0.9, "momentum (optimisers momentum, nesterov and rmsprop)", least=0, below=1),
    Setting("eps", "float", 1e-8, "ε of adam, adamw and rmsprop", above=0),
    Setting("weight_decay", "float", 0.0, "ℓ2 penalty (decoupled for adamw)", least=0),
    Setting("seed", "int", 0, "decides connections, weights, noise and the order of the data", least=0),
    Setting("engine", "str", "auto", "fused native steps, ordinary modules, or whichever applies", choices=("auto", "fused", "module")),
    Setting("threads", "int | None", None, "threads of torch and of the kernels (default: torch's)", least=1),
    Setting("on_nan", "str", "stop", "when a step is not finite: stop the run, or skip the step", choices=("stop", "skip")),
    Setting("checkpoint_every", "int | None", None, "steps between checkpoints, at least", least=1),
    Setting("checkpoint_seconds", "float", 30.0, "seconds between checkpoints, at least; 0 for none by time", least=0),
    Setting("imports", "list[str]", [], "modules that register methods of your own (--import)"),
)
# Where a run computes, finds its data and how often it is kept: none of it makes it another run.
WHERE = ("data_path", "threads", "checkpoint_every", "checkpoint_seconds", "imports")
# What may differ between the sittings of a run: also what someone asks for to get past a failure.
FREE = (*WHERE, "on_nan", "engine")

# Named settings to start from; METHOD.NAME is the setting NAME of runs with that method. ``paper`` is the paper's; the others are ours, chosen on validation data:
# ``wirebound_lab.paper`` holds the alternatives that were compared, results/mnist/choice what came out.
_OURS = {"schedule": "cosine", "final_lr": 0.001, "init": "sparse-fan-in", "allocation": "erdos-renyi", "bias": True}
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"deep-r.l1": 1e-4, "deep-r.newborn_moments": "own"},
    "recommended": {**_OURS, "epochs": 30, "lr": 0.12, "dense_lr": True, "batch_size": 20},
    "thorough": {**_OURS, "epochs": 200, "lr": 2.0, "batch_size": 50, "deep-r.l1": 1e-4},  # for who can wait
    # The best up to now from 2 % on (results/records); at 1 % with --epochs 1000 --lr 2 --l1 1e-4.
    "best": {**_OURS, "epochs": 200, "lr": 1.0, "batch_size": 50, "deep-r.l1": 5e-5, "input_dropout": 0.1},
    # A perceptron of three wide layers on CIFAR-10 (results/records); the output is dense and not counted.
    "images": {
        **_OURS, "data": "cifar10", "hidden": [3072] * 3, "allocation": "uniform", "dense_output": True, "correlated": [16.0, 8.0, 8.0],
        "augment": "crop-flip", "shift": 2, "mixup": 0.2, "epochs": 60, "batch_size": 64, "optimizer": "momentum", "lr": 0.02, "sparse_lr": 10.0,
        "final_lr": 0.0, "deep-r.turnover": 0.01, "deep-r.births": "paths",
        "deep-r.rewire_every": 20, "deep-r.mean_gradient": 0.1,
    },
}  # fmt: skip


class ConfigError(ValueError):
    """A setting is wrong; the message says the rule, the name and the value."""


@contextlib.contextmanager
def as_config_error() -> Iterator[None]:
    """What is wrong with a value, as a wrong setting."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(str(error)) from error


def tasks() -> dict[str, type[Task]]:
    from wirebound_lab.tasks import TASKS  # here, because tasks are made of run settings

    return TASKS


def settings_of(task: str, method: str) -> dict[str, Setting]:
    """The settings of a run of this task with this method, by name."""
    kind, of_methods = tasks()[task], {setting.name for other in METHODS.values() for setting in other.settings}
    found = {setting.name: setting for setting in (*RUN_SETTINGS, *METHODS[method].settings)}
    for setting in kind.settings:  # a task may declare one of a method otherwise; it then applies where the method has it
        if setting.name in found or setting.name not in of_methods:
            found[setting.name] = setting
    return found | {name: found[name].with_default(value) for name, value in kind.defaults.items() if name in found}


def known_settings(task: str, method: str) -> dict[str, Setting]:
    """The same, and behind them the settings of all other methods, which are accepted and have no effect."""
    found = settings_of(task, method)
    others = {setting.name: setting for other in METHODS.values() for setting in other.settings if setting.name not in found}
    return found | others


class RunConfig:
    """The settings of one run, as attributes, with defaults for its task and method; ``make_config`` also checks them."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **given: Any) -> None:
        task, method = _chosen(given)
        require_known(given, known_settings(task, method))
        for name, setting in settings_of(task, method).items():
            setattr(self, name, given[name] if name in given else copy.copy(setting.default))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunConfig) and self.as_dict() == other.as_dict()

    def __repr__(self) -> str:
        return f"RunConfig({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def identity(self, apart_from: Sequence[str] = FREE) -> dict[str, Any]:
        """The settings that make the run what it is."""
        return {name: value for name, value in self.__dict__.items() if name not in apart_from}

    def replace(self, **changes: Any) -> RunConfig:
        return RunConfig(**{**self.__dict__, **changes})

    @property
    def sized(self) -> bool:
        """Whether connectivity or budget mean anything to the method."""
        return bool(METHODS[self.method].sized_by)

    def check(self) -> RunConfig:
        """Raise ``ConfigError`` at the first setting that breaks its rule."""
        with as_config_error():
            for name, setting in settings_of(self.task, self.method).items():
                setting.check(getattr(self, name))
        method = METHODS[self.method]
        given = [name for name in method.sized_by if getattr(self, name) is not None]
        if self.sized and not given:
            raise ConfigError(f"method (={self.method!r}) needs connectivity or budget")
        instead = [f"{name} (={getattr(self, name)})" for name in given if name not in method.sized_beside]
        if len(instead) > 1:
            raise ConfigError(f"give {' or '.join(instead)}, not both")
        if self.schedule == "exponential" and self.final_lr == 0:
            raise ConfigError("final_lr (=0.0) must be > 0 for the exponential schedule")
        tasks()[self.task].check(self)
        return self

    def lr_factor(self, progress: float) -> float:
        """η at ``progress`` (0 at the first step, 1 at the last) as a share of ``lr``; it rises first where there is a warm-up."""
        warmup = getattr(self, "warmup", 0.0)
        if progress < warmup:
            return float(max(progress / warmup, LEAST_WARM))
        progress = (progress - warmup) / (1 - warmup)
        if self.schedule == "paper":
            return float(0.1 ** math.floor(progress * self.epochs / PAPER_DECAY_EPOCHS))
        return SCHEDULES[self.schedule](progress, self.final_lr)


TrainConfig = RunConfig


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON or TOML file, by name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file (={path}) cannot be read: {error}") from error
    if toml := path.suffix == ".toml":
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
    try:
        found = tomllib.loads(text) if toml else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"config file (={path}) is not valid {'TOML' if toml else 'JSON'}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"config file (={path}) must hold one table of settings")
    return found


def import_modules(names: Sequence[str]) -> None:
    """Import modules that register methods."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"import (={name}) cannot be imported: {error}; it must be on PYTHONPATH or installed") from error


def merge(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from several places, later ones first in rank; of connectivity and budget the later one remains."""
    merged: dict[str, Any] = {}
    for source in sources:
        for name, twin in (("budget", "connectivity"), ("connectivity", "budget")):
            if source.get(name) is not None:
                merged.pop(twin, None)
        merged.update(source)
    return merged


def make_config(*sources: Mapping[str, Any]) -> RunConfig:
    """The settings of a run from several places, later ones first in rank; names, types and rules are checked."""
    merged = _of_method(merge(*sources))
    known = known_settings(*_chosen(merged))
    require_known(merged, known)
    typed = {name: typed_value(known[name], value) for name, value in merged.items()}
    config = RunConfig(**typed).check()
    with as_config_error():
        for name in typed.keys() - config.as_dict().keys():  # of other methods
            known[name].check(typed[name])
    return config


def _of_method(merged: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their own names: METHOD.NAME counts where that method is chosen and nobody has said NAME."""
    own = {name: value for name, value in merged.items() if "." not in name}
    for dotted in merged.keys() - own.keys():
        method, _, name = dotted.partition(".")
        if method == own.get("method", METHOD):
            own.setdefault(name, merged[dotted])
    return own


def _chosen(given: Mapping[str, Any]) -> tuple[str, str]:
    """The task and the method that settings name."""
    task, method = given.get("task", TASK), given.get("method", METHOD)
    known: tuple[tuple[str, Any, Mapping[str, Any]], ...] = (("task", task, tasks()), ("method", method, METHODS))
    for name, value, there in known:
        if not isinstance(value, str) or value not in there:
            raise ConfigError(f"{name} (={_shown(value)}) must be one of {', '.join(there)}")
    return task, method


def require_known(given: Mapping[str, Any], known: Mapping[str, Setting]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`wirebound train --help` lists them all"
            raise ConfigError(f"unknown setting {name!r}; {hint}")


def typed_value(setting: Setting, value: Any) -> Any:
    """``value`` as the setting's type has it; whole numbers are real numbers too."""
    wanted = setting.type.replace(" | None", "")
    if (value is None and wanted != setting.type) or (isinstance(value, str) and value in setting.words):
        return value
    each = value if isinstance(value, list) else [value]
    if any(isinstance(n, int) and not -_LARGEST <= n < _LARGEST for n in each):
        raise ConfigError(f"{setting.name} must be a number in [-2^63, 2^63)")
    element = {"list[int]": int, "list[str]": str, "list[float]": float, "int": int, "str": str, "bool": bool, "float": float}[wanted]
    fits = all(type(one) is element or (element is float and type(one) is int) for one in each)
    if not fits or isinstance(value, list) != wanted.startswith("list"):
        raise ConfigError(f"{setting.name} (={_shown(value)}) must be {_wanted(setting)}")
    if element is float:
        return [float(one) for one in value] if isinstance(value, list) else float(value)
    return value


def parse_text(setting: Setting, text: str | bool | list[str]) -> Any:
    """A value from the command line."""
    wanted = setting.type.replace(" | None", "")
    if text in setting.words:
        return text
    try:
        if isinstance(text, list):
            kind = {"list[int]": int, "list[float]": float}.get(wanted, str)
            return [kind(one) for one in text]
        return {"int": int, "float": float}[wanted](text) if wanted in ("int", "float") else text
    except ValueError:
        raise ConfigError(f"{setting.name} (={text!r}) must be {_wanted(setting)}") from None


def _wanted(setting: Setting) -> str:
    return " or ".join([setting.type.replace(" | None", ""), *map(repr, setting.words)])


def _shown(value: Any) -> str:
    shown = repr(value) if isinstance(value, str | int | float | list | dict | None) else f"a {type(value).__name__}"
    return shown if len(shown) <= 80 else shown[:77] + "..."
