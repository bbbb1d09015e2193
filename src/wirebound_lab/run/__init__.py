"""Training runs: settings, the loop, what is recorded and where."""

from wirebound_lab.run.config import RunConfig, TrainConfig
from wirebound_lab.run.loop import RunResult, train

__all__ = ["RunConfig", "RunResult", "TrainConfig", "train"]
