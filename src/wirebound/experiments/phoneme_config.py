"""The settings of the speech experiment; defaults are the paper's (appendix A)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from wirebound.methods.deep_r import NEWBORNS
from wirebound.train.config import ConfigError

SPARSE = ("deep-r", "fixed")
METHODS = (*SPARSE, "dense")
DATA = ("speech", "timit", "spoken")
FREE = ("data_path", "threads")  # may differ between the sittings of a run


def _setting(default: Any, help: str, **extra: Any) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, **extra})


@dataclass
class PhonemeConfig:
    """One run of framewise phone classification."""

    data: str = _setting("speech", "data set", choices=DATA)
    data_path: str | None = _setting(None, "folder that holds the data set (default: WIREBOUND_DATA, the cache)")
    partial: bool = _setting(False, "accept a part of TIMIT")
    validation: float = _setting(0.05, "share of the training utterances that is held out, whole speakers, to pick the epoch")
    utterances: int | None = _setting(None, "train on so many utterances only, for trying out")
    method: str = _setting("deep-r", "training method", choices=METHODS)
    connectivity: float | None = _setting(None, "share of the possible connections that may exist, in (0, 1]")
    budget: int | None = _setting(None, "number of connections, instead of connectivity")
    hidden: int = _setting(200, "cells of the LSTM in each direction")
    epochs: int = _setting(40, "passes over the training data")
    batch_size: int = _setting(32, "utterances in a step")
    lr: float = _setting(0.01, "learning rate η of Adam")
    eps: float = _setting(1e-4, "ε of Adam")
    weight_decay: float = _setting(0.0, "ℓ2 penalty")
    l1: float = _setting(0.03, "α, the ℓ1 pull of DEEP R")
    temperature: float = _setting(0.0, "temperature T of DEEP R")
    newborns: str = _setting("share", "layer of a newborn: by initial share, or uniform over all dormant", choices=NEWBORNS)
    seed: int = _setting(0, "decides connections, weights, the validation part and the order of the data")
    threads: int | None = _setting(None, "threads of torch and of the kernels (default: torch's)")

    def check(self) -> PhonemeConfig:
        """Raise ``ConfigError`` at the first setting that breaks its rule."""
        for field in dataclasses.fields(self):
            choices, value = field.metadata.get("choices"), getattr(self, field.name)
            if choices and value not in choices:
                raise ConfigError(f"{field.name} (={value!r}) must be one of {', '.join(choices)}")
        given = (self.connectivity is not None) + (self.budget is not None)
        if self.method in SPARSE and given != 1:
            raise ConfigError(
                f"method (={self.method!r}) needs connectivity (={self.connectivity}) or budget (={self.budget}), one of them"
            )
        if self.method == "dense" and given:
            raise ConfigError("method (='dense') has no connectivity and no budget: leave them away")
        if self.connectivity is not None and not 0 < self.connectivity <= 1:
            raise ConfigError(f"connectivity (={self.connectivity}) must be in (0, 1]")
        if not 0 < self.validation < 1:
            raise ConfigError(f"validation (={self.validation}) must be in (0, 1)")
        for name in ("utterances", "budget", "hidden", "epochs", "batch_size", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} (={value}) must be at least 1")
        for name in ("lr", "eps"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} (={value}) must be a finite number > 0")
        for name in ("weight_decay", "l1", "temperature"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} (={value}) must be a finite number >= 0")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed (={self.seed}) must be in [0, 2**32)")
        return self

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def identity(self) -> dict[str, Any]:
        """The settings that decide the result."""
        return {name: value for name, value in self.as_dict().items() if name not in FREE}
