"""The settings of the speech experiment; defaults are the paper's (appendix A)."""

from __future__ import annotations

from dataclasses import dataclass

from wirebound_lab.run.config import ConfigError
from wirebound_lab.tasks.task_config import TaskConfig, setting

DATA = ("speech", "timit", "spoken")


@dataclass
class PhonemeConfig(TaskConfig):
    """One run of framewise phone classification."""

    data: str = setting("speech", "data set", choices=DATA)
    partial: bool = setting(False, "accept a part of TIMIT")
    validation: float = setting(0.05, "share of the training utterances that is held out, whole speakers, to pick the epoch")
    utterances: int | None = setting(None, "train on so many utterances an epoch only, for trying out")
    test_utterances: int | None = setting(None, "evaluate on so many utterances of each part only, for trying out")
    hidden: int = setting(200, "cells of the LSTM in each direction")
    epochs: int = setting(40, "passes over the training data")
    batch_size: int = setting(32, "utterances in a step")
    lr: float = setting(0.01, "learning rate η of Adam")
    eps: float = setting(1e-4, "ε of Adam")
    l1: float = setting(0.03, "α, the ℓ1 pull of deep-r, soft-deep-r and l1-shrinkage")
    temperature: float = setting(0.0, "temperature T of deep-r")

    def check(self) -> PhonemeConfig:
        super().check()
        if not 0 < self.validation < 1:
            raise ConfigError(f"validation (={self.validation}) must be in (0, 1)")
        for name in ("utterances", "test_utterances", "hidden"):
            self.at_least(name, 1)
        self.positive("eps")
        for name in ("l1", "temperature"):
            self.at_least(name, 0)
        return self
