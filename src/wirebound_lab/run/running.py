"""The loop itself: epochs of steps, windows that are recorded, checkpoints from which it goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.checkpoint import CheckpointError, save
from wirebound.engine.diagnose import broken_parameter, where_not_finite
from wirebound.engine.modules import DivergedError, Engine, data_order
from wirebound.engine.window import StepWindow, Tally
from wirebound.methods import Method
from wirebound.nn.sparse_layer import wirings
from wirebound.wiring import WiringError
from wirebound_lab.run.config import TrainConfig
from wirebound_lab.run.interrupt import Interrupted, StopRequest
from wirebound_lab.run.observe import Observer
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import checkpoint_extra
from wirebound_lab.run.run_state import RunState

WINDOWS = 400  # points of the loss curve of a run
_EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Progress:
    """What a progress display is told after each window and each epoch."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float | None
    active: int


Listener = Callable[[Progress], None]
Recorder = Callable[[str, Mapping[str, Any]], None]  # gets what goes into metrics.jsonl, as it comes: (kind, values)


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """(accuracy, mean cross-entropy) of the model on these examples."""
    model.eval()
    right, loss = 0, 0.0
    for part, labels in zip(x.split(_EVALUATION_BATCH), y.split(_EVALUATION_BATCH), strict=True):
        logits = model(part)
        right += int((logits.argmax(1) == labels).sum())
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
    return right / len(y), loss / len(y)


@dataclass
class Examples:
    """What the loop needs to know about the data: how many to train on, and what to evaluate on."""

    count: int
    test_x: Tensor
    test_y: Tensor
    shape: tuple[int, ...]


@dataclass
class Run:
    """A run that has been set up, new or from a checkpoint."""

    config: TrainConfig
    model: nn.Module
    method: Method
    engine: Engine
    examples: Examples
    state: RunState
    folder: RunFolder | None
    listener: Listener | None
    recorder: Recorder | None = None

    def __post_init__(self) -> None:
        self.per_epoch = -(-self.examples.count // self.config.batch_size)
        self.steps = self.per_epoch * self.config.epochs
        self.window = max(1, self.steps // WINDOWS)
        self.engine.on_nan = self.config.on_nan
        self.observer = Observer(self.method)
        self._kept_at = self._clock = time.perf_counter()
        self._kept_step = 0

    def continue_from(self, state: RunState | None) -> None:
        """Take up a run from the state of its checkpoint, or from the start if it never came to one."""
        assert self.folder is not None
        self.folder.rewind(0 if state is None else state.metrics)
        if state is not None:
            self.state, self.engine.skips, self._kept_step = state, state.skips, self.method.steps

    def go(self, stop: StopRequest) -> None:
        """Train to the end. Whatever ends it earlier leaves the last good checkpoint behind."""
        state = self.state
        if self.method.steps == 0:
            state.active_min = state.active_max = sum(state.initial)
            self._record_wiring(0, 0)
        try:
            while state.epoch <= self.config.epochs:
                self._epoch(stop)
        except (DivergedError, WiringError) as error:
            raise type(error)(f"{error}{self._last_good()}") from error

    def _epoch(self, stop: StopRequest) -> None:
        config, state = self.config, self.state
        first = (state.epoch - 1) * self.per_epoch
        lrs = [config.lr * config.lr_factor((first + i) / max(1, self.steps - 1)) for i in range(self.per_epoch)]
        if state.taken < self.per_epoch:
            order = data_order(self.examples.count, config.seed, state.epoch)
            began = time.perf_counter()
            try:
                for part in self.engine.epoch(order, lrs, config.batch_size, self.window, state.taken, stop):
                    state.training_seconds += time.perf_counter() - began
                    self._note(part)
                    if state.taken < self.per_epoch:  # after the last step comes the evaluation first
                        self._keep(stop)
                    began = time.perf_counter()
            except DivergedError as error:
                if error.done is not None:
                    self._note(error.done)
                raise
        self._end_epoch(lrs[-1])
        self._keep(stop)

    def _note(self, part: StepWindow) -> None:
        state = self.state
        state.taken += part.step_to - part.step_from + 1
        state.window.add(part)
        state.whole.add(part)
        state.active_min, state.active_max = (
            min(state.active_min, part.active_min),
            max(state.active_max, part.active_max),
        )
        state.skipped += len(part.skipped)
        state.skips = self.engine.skips
        for skip in part.skipped:
            self._metric("skipped", step=skip.step, where=skip.where)
        if state.taken % self.window == 0 or state.taken == self.per_epoch:
            self._metric("window", **state.window.as_record(), deaths=self._deaths())
            state.window = Tally()
        self._tell(part.loss, None)

    def _deaths(self) -> list[int] | None:
        """Of each layer in the window that ends here: who was born and is not there any more, and who else is gone.
        None where a method does not count those that are born."""
        before, now = self.state.layer_active, self.method.layer_active()
        self.state.layer_active = now
        if not self.method.counts_newborns:
            return None
        born = self.state.window.newborns
        return [new - (b - a) for new, a, b in zip(born, before, now, strict=True)]

    def _end_epoch(self, lr: float) -> None:
        state, model = self.state, self.model
        self._check_finite()
        for wiring in wirings(model):
            wiring.check()
        state.accuracy, state.test_loss = evaluate(model, self.examples.test_x, self.examples.test_y)
        if not math.isfinite(state.test_loss):
            where = where_not_finite(model, self.examples.test_x)
            raise DivergedError(
                f"the test loss (={state.test_loss}) after epoch {state.epoch} must be a finite number, first at "
                f"fault: {where}; try a lower learning rate (now {lr:g})"
            )
        step, active = state.epoch * self.per_epoch, self.method.layer_active()
        self._metric(
            "epoch",
            epoch=state.epoch,
            step=step,
            train_loss=state.whole.mean_loss,
            test_loss=state.test_loss,
            test_accuracy=state.accuracy,
            lr=lr,
            active=sum(active),
            rewired=sum(state.whole.newborns),
            layer_active=active,
            seconds=self.measure(),
        )
        self._record_wiring(state.epoch, step)
        self._tell(state.whole.mean_loss or 0.0, state.accuracy)
        state.epoch, state.taken, state.whole = state.epoch + 1, 0, Tally()

    def measure(self) -> float:
        """Seconds of all sittings up to now."""
        now = time.perf_counter()
        self.state.seconds, self._clock = self.state.seconds + now - self._clock, now
        return self.state.seconds

    # Checkpoints

    def _keep(self, stop: StopRequest) -> None:
        """Write a checkpoint if one is due, or if the run was asked to stop; then it stops."""
        if self.folder is None:
            return
        config, now, step = self.config, time.perf_counter(), self.method.steps
        every = config.checkpoint_every
        due = every is not None and step // every > self._kept_step // every
        stopping = stop() and self.state.epoch <= config.epochs  # a run at its end is better finished
        if stopping or due or (0 < config.checkpoint_seconds <= now - self._kept_at):
            self.write_checkpoint()
            self._kept_at, self._kept_step = time.perf_counter(), step
        if stopping:
            assert stop.signal is not None
            raise Interrupted(
                f"interrupted after step {step} of {self.steps}; go on with --resume --out {self.folder.path}",
                128 + stop.signal,
            )

    def write_checkpoint(self) -> None:
        assert self.folder is not None
        self._check_finite()
        self.measure()
        self.state.metrics = self.folder.position()
        # The loop draws nothing from torch's generator, so its state is no part of the run.
        extra = checkpoint_extra(self.config, self.engine.name, self.state, self.observer)
        save(self.folder.checkpoint, method=self.method, extra=extra, random_state=False)

    def _check_finite(self) -> None:
        """Weights can be lost while the loss still looks well: units that are off hide them."""
        broken = broken_parameter(self.model)
        if broken:
            raise DivergedError(f"{broken} are not finite after step {self.method.steps}; try a lower learning rate")

    def _last_good(self) -> str:
        """What is left after a failure, for the error to say."""
        if self.folder is None:
            return ""
        if not self.folder.checkpoint.exists() and self.state.epoch > 1:
            try:
                self.write_checkpoint()  # if the weights before the failure are good, they are kept
            except (DivergedError, CheckpointError, WiringError, OSError):
                return ""
        if self.folder.checkpoint.exists():
            return f"; the last good checkpoint is kept in {self.folder.partial}"
        return ""

    # What others are told

    def _metric(self, kind: str, **values: object) -> None:
        if self.folder is not None:
            self.folder.metric(kind, **values)
        if self.recorder is not None:
            self.recorder(kind, values)

    def _record_wiring(self, epoch: int, step: int) -> None:
        """Where the connections are and how old; with the inputs, the picture of where the network looks."""
        if self.folder is not None:
            seen = self.observer.look(epoch)
            if seen is not None:
                self._metric("wiring", epoch=epoch, step=step, shape=list(self.examples.shape), **seen)

    def _tell(self, loss: float, accuracy: float | None) -> None:
        if self.listener is not None:
            active = sum(self.method.layer_active())
            state, config = self.state, self.config
            self.listener(Progress(self.method.steps, self.steps, state.epoch, config.epochs, loss, accuracy, active))
