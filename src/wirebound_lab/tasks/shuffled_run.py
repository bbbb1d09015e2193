"""A DEEP R run whose labels are permuted anew for every epoch, measured between epochs (figure 4).

Beside the usual records, ``metrics.jsonl`` has "recovery" lines (accuracy within an epoch, the first right after the
shuffle) and "transfer" lines (for each layer, correlation of weights and of activities with those one epoch before).
A checkpoint is written after every epoch; the network in it is the one that the next epoch is compared with.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wirebound.checkpoint import CheckpointError, load, save
from wirebound.engine.modules import Engine, data_order
from wirebound.engine.window import Tally
from wirebound.methods import Method
from wirebound.nn.sparse_layer import wirings
from wirebound_lab import data as datasets
from wirebound_lab.data import Dataset
from wirebound_lab.paper.job import Job, Summary, read_summary
from wirebound_lab.run import TrainConfig
from wirebound_lab.run.interrupt import Interrupted, StopRequest
from wirebound_lab.run.loop import choose_engine
from wirebound_lab.run.models import build_method, build_model, build_optimizer
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import FREE
from wirebound_lab.run.run_state import RunState, read_state
from wirebound_lab.run.running import evaluate
from wirebound_lab.run.summary import summarise
from wirebound_lab.tasks.same_run import check_same
from wirebound_lab.tasks.transfer import Snapshot, activity_correlation, weight_correlation

EXPERIMENT = "class-shuffled"
PARTS = 8  # of an epoch, with a look at the accuracy after each
_PROBE = 1000  # test inputs whose activities are compared


def permutation(classes: int, seed: int, epoch: int) -> Tensor:
    """The class that stands for each class in an epoch; the first has the labels as they are."""
    if epoch == 1:
        return torch.arange(classes)
    # RandomState's stream is frozen for good: the same labels with every version.
    return torch.from_numpy(np.random.RandomState([seed, epoch]).permutation(classes)).to(torch.int64)


@dataclass(frozen=True)
class ShuffledJob(Job):
    """A run of ``train_shuffled``."""

    folder: str
    config: TrainConfig

    def run(self, path: Path) -> Summary:
        return train_shuffled(self.config, path)

    def finished(self, path: Path) -> Summary | None:
        check_same(identity(self.config), path)
        return read_summary(path)


def identity(config: TrainConfig) -> dict[str, Any]:
    """What makes a run another run."""
    return {"experiment": EXPERIMENT, **{name: value for name, value in config.as_dict().items() if name not in FREE}}


def train_shuffled(config: TrainConfig, out: Path) -> Summary:
    """Train as the settings say, from the last epoch that an earlier start came to; leaves a run folder."""
    config.check()
    folder = RunFolder(out, resume=True)
    check_same(identity(config), out)
    done = read_summary(out)
    if done is not None:
        return done
    data = datasets.load(config.data, path=config.data_path)
    model = build_model(config, data.features, data.classes)
    method = build_method(config, model, build_optimizer(config, model), -(-len(data.train_y) // config.batch_size))
    run = ShuffledRun(config, data, method, choose_engine(config, model, method, data), folder)
    with StopRequest() as stop, folder:
        run.take_up()
        folder.write_json("config.json", {**config.as_dict(), "experiment": EXPERIMENT})
        while run.state.epoch <= config.epochs:
            run.epoch(stop)
            run.keep()
        summary = run.summary()
        folder.finish(summary, model)
    return summary


class ShuffledRun:
    """The run while it is going on."""

    def __init__(self, config: TrainConfig, data: Dataset, method: Method, engine: Engine, folder: RunFolder) -> None:
        self.config, self.data, self.method, self.engine, self.folder = config, data, method, engine, folder
        self.model = method.model
        self.state = RunState(method.layer_active())
        self.state.active_min = self.state.active_max = sum(self.state.initial)
        self.test_x = data.inputs("test", flatten=True)
        self.per_epoch = -(-len(data.train_y) // config.batch_size)

    def take_up(self) -> None:
        """The state of the last checkpoint, put into its objects; the start if there is none."""
        if not self.folder.checkpoint.exists():
            self.folder.rewind(0)
            return
        extra = load(self.folder.checkpoint, method=self.method).extra
        if not isinstance(extra, dict) or extra.get("config") != identity(self.config):
            raise CheckpointError(f"{self.folder.checkpoint} is not of a run of this experiment with these settings")
        self.state = read_state(extra.get("run"), len(self.method.shapes), self.config.epochs, self.per_epoch)
        self.folder.rewind(self.state.metrics)

    def keep(self) -> None:
        self.state.metrics = self.folder.position()
        extra = {"config": identity(self.config), "run": self.state.as_dict()}
        save(self.folder.checkpoint, method=self.method, extra=extra, random_state=False)

    def epoch(self, stop: StopRequest) -> None:
        config, state, began = self.config, self.state, time.perf_counter()
        number = state.epoch
        classes = permutation(self.data.classes, config.seed, number)
        labels = classes[self.data.test_y]
        before = Snapshot.of(self.model, self.test_x[:_PROBE])
        self.engine.y = classes[self.data.train_y]  # type: ignore[attr-defined]
        self._recovery(number, 0, labels)
        order = data_order(len(self.data.train_y), config.seed, number)
        window = -(-self.per_epoch // PARTS)
        state.window, state.whole, state.taken = Tally(), Tally(), 0
        for part in self.engine.epoch(order, [config.lr] * self.per_epoch, config.batch_size, window):
            if stop():
                assert stop.signal is not None
                raise Interrupted(f"interrupted in epoch {number}; the epochs before it are kept", 128 + stop.signal)
            state.taken += part.step_to - part.step_from + 1
            state.window.add(part)
            state.whole.add(part)
            if state.taken % window == 0 or state.taken == self.per_epoch:
                self.folder.metric("window", **state.window.as_record())
                state.window = Tally()
                self._recovery(number, state.taken, labels)
        self._end_epoch(number, before, labels, began)

    def _recovery(self, epoch: int, taken: int, labels: Tensor) -> None:
        accuracy, loss = evaluate(self.model, self.test_x, labels)
        self.state.accuracy, self.state.test_loss = accuracy, loss
        self.folder.metric("recovery", epoch=epoch, step=(epoch - 1) * self.per_epoch + taken, test_accuracy=accuracy)

    def _end_epoch(self, number: int, before: Snapshot, labels: Tensor, began: float) -> None:
        state = self.state
        for wiring in wirings(self.model):
            wiring.check()
        state.active_min = min(state.active_min, state.whole.active_min)
        state.active_max = max(state.active_max, state.whole.active_max)
        after = Snapshot.of(self.model, self.test_x[:_PROBE])
        self.folder.metric(
            "transfer",
            epoch=number,
            weights=[weight_correlation(a, b) for a, b in zip(before.weights, after.weights, strict=True)],
            activities=[activity_correlation(a, b) for a, b in zip(before.activities, after.activities, strict=True)],
        )
        state.seconds += time.perf_counter() - began
        state.training_seconds = state.seconds
        active = self.method.layer_active()
        self.folder.metric(
            "epoch",
            epoch=number,
            step=number * self.per_epoch,
            train_loss=state.whole.mean_loss,
            test_loss=state.test_loss,
            test_accuracy=state.accuracy,
            lr=self.config.lr,
            active=sum(active),
            rewired=sum(state.whole.newborns),
            layer_active=active,
            seconds=round(state.seconds, 3),
        )
        state.epoch, state.taken = number + 1, 0

    def summary(self) -> Summary:
        steps = self.per_epoch * self.config.epochs
        found = summarise(self.config, self.model, self.method, self.engine.name, steps, self.state)
        return {**found, "experiment": EXPERIMENT, "processes": 1}
