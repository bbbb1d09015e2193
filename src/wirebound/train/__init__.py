"""Training runs: settings, the loop, what is recorded and where."""

from wirebound.train.config import TrainConfig
from wirebound.train.loop import RunResult, train

__all__ = ["RunResult", "TrainConfig", "train"]
