"""The settings that the experiments with networks of their own (CIFAR-10, speech) have in common."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from torch import nn, optim

from wirebound.methods import METHODS, SET, DeepR, L1Shrinkage, MagnitudePruning, Method, RigL, SoftDeepR
from wirebound.methods.deep_r import NEWBORNS
from wirebound.methods.soft_rules import theta_min_from_l1
from wirebound.schedule import Rate, noise_amplitude
from wirebound.wiring import Allocation
from wirebound_lab.run.config import UNSIZED, ConfigError

TASK_METHODS = ("deep-r", "fixed", "dense", "soft-deep-r", "l1-shrinkage", "pruning", "set", "rigl")
FREE = ("data_path", "threads")  # may differ between the sittings of a run


def setting(default: Any, help: str, **extra: Any) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, **extra})


@dataclass
class TaskConfig:
    """One run; each experiment adds its own settings and gives the paper's values as defaults."""

    data_path: str | None = setting(None, "folder that holds the data set (default: WIREBOUND_DATA, the cache)")
    method: str = setting("deep-r", "training method", choices=TASK_METHODS)
    connectivity: float | None = setting(None, "share of the possible connections that may exist, in (0, 1]")
    budget: int | None = setting(None, "number of connections, instead of connectivity")
    newborns: str = setting("share", "layer of a newborn: by initial share, or uniform over all dormant", choices=NEWBORNS)
    quality: float | None = setting(None, "pruning: q of the paper, instead of connectivity")
    fraction: float = setting(0.3, "share of the connections that set and rigl replace at a time")
    weight_decay: float = setting(0.0, "ℓ2 penalty")
    epochs: int = setting(1, "passes over the training data")
    batch_size: int = setting(32, "examples in a step")
    lr: float = setting(0.1, "learning rate η at the start")
    seed: int = setting(0, "decides connections, weights, noise and the order of the data")
    threads: int | None = setting(None, "threads of torch and of the kernels (default: torch's)")

    @property
    def plain(self) -> bool:
        """Whether the method works on the plain model."""
        return METHODS[self.method].plain

    def check(self) -> TaskConfig:
        """Raise ``ConfigError`` at the first setting that breaks its rule."""
        for field in dataclasses.fields(self):
            choices, value = field.metadata.get("choices"), getattr(self, field.name)
            if choices and value not in choices:
                raise ConfigError(f"{field.name} (={value!r}) must be one of {', '.join(choices)}")
        self._check_size()
        for name in ("budget", "epochs", "batch_size", "threads"):
            self.at_least(name, 1)
        for name in ("weight_decay", "quality"):
            self.at_least(name, 0)
        self.positive("lr")
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction (={self.fraction}) must be in (0, 1]")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed (={self.seed}) must be in [0, 2**32)")
        return self

    def _check_size(self) -> None:
        given = [self.connectivity, self.budget, *([self.quality] if self.method == "pruning" else [])]
        count = sum(value is not None for value in given)
        if self.method in UNSIZED and count:
            raise ConfigError(f"method (={self.method!r}) has no connectivity and no budget: leave them away")
        if self.method not in UNSIZED and count != 1:
            raise ConfigError(
                f"method (={self.method!r}) needs connectivity (={self.connectivity}) or budget (={self.budget}), one of them"
            )
        if self.connectivity is not None and not 0 < self.connectivity <= 1:
            raise ConfigError(f"connectivity (={self.connectivity}) must be in (0, 1]")

    def at_least(self, name: str, minimum: int) -> None:
        value = getattr(self, name)
        if value is not None and not (math.isfinite(value) and value >= minimum):
            raise ConfigError(f"{name} (={value}) must be a finite number >= {minimum}")

    def positive(self, name: str) -> None:
        value = getattr(self, name)
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} (={value}) must be a finite number > 0")

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def identity(self) -> dict[str, Any]:
        """The settings that decide the result."""
        return {name: value for name, value in self.as_dict().items() if name not in FREE}


def build_task_method(
    config: TaskConfig,
    model: nn.Module,
    optimizer: optim.Optimizer,
    steps: int,
    *,
    l1: list[float],
    noise: list[float],
    allocation: Allocation = "paper",
    gain: float | list[float] = 1.0,
    exclude: tuple[str, ...] = (),
) -> Method:
    """The method of a run of ``steps`` steps; α (``l1``) and g (``noise``) have one value for each matrix."""
    kind = METHODS[config.method]
    temperature: Rate = [noise_amplitude(g) for g in noise]
    if kind is DeepR:
        return DeepR(model, optimizer, l1=l1, temperature=temperature, newborns=config.newborns)
    if kind is SoftDeepR:
        # The paper's simple rule, α = 3 √(2T/η) = −θ_min/3.
        floors = [theta_min_from_l1(rate) for rate in l1]
        return SoftDeepR(
            model,
            optimizer,
            l1=l1,
            theta_min=floors,
            connectivity=config.connectivity,
            budget=config.budget,
            allocation=allocation,
            gain=gain,
            exclude=exclude,
            seed=config.seed,
        )
    if kind is L1Shrinkage:
        return L1Shrinkage(model, optimizer, l1=l1, exclude=exclude)
    if kind is MagnitudePruning:
        return MagnitudePruning(
            model,
            optimizer,
            total_steps=steps,
            quality=config.quality,
            connectivity=config.connectivity,
            budget=config.budget,
            exclude=exclude,
        )
    if kind is SET:
        # Not after the last step: its newborns would never be trained.
        return SET(model, optimizer, zeta=config.fraction, every=max(1, steps // config.epochs), until=steps)
    if kind is RigL:
        return RigL(model, optimizer, fraction=config.fraction, every=100, until=max(1, round(0.75 * steps)))
    return kind(model, optimizer)  # type: ignore[call-arg]
