"""Training runs: settings, the loop, what is recorded and where."""

from wirebound_lab.run.config import TrainConfig
from wirebound_lab.run.loop import RunResult, train

__all__ = ["RunResult", "TrainConfig", "train"]
