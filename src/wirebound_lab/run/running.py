"""The loop itself: epochs of steps (of ``wirebound/engine``), windows that are recorded, checkpoints from which it resumes."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wirebound.checkpoint import CheckpointError, save
from wirebound.engine.modules import DivergedError, Engine, broken_parameter, broken_state
from wirebound.engine.window import StepWindow, Tally
from wirebound.nn.sparse_layer import wirings
from wirebound.wiring import WiringError
from wirebound_lab.run.observe import Observer
from wirebound_lab.run.processes import Interrupted, StopRequest
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import RunState, checkpoint_extra
from wirebound_lab.tasks.task import Task


@dataclass(frozen=True)
class RunProgress:
    """What a progress display is told after each window and each epoch: where the run stands, of how much."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float | None
    active: int


Listener = Callable[[RunProgress], None]
Recorder = Callable[[str, Mapping[str, Any]], None]  # gets what goes into metrics.jsonl, as it comes: (kind, values)


@dataclass
class TrainingRun:
    """A run that has been set up, new or from a checkpoint."""

    task: Task
    engine: Engine
    state: RunState
    folder: RunFolder | None
    listener: Listener | None = None
    recorder: Recorder | None = None

    def __post_init__(self) -> None:
        self.config, self.method = self.task.config, self.task.method
        self.model = self.method.model
        self.engine.on_nan = self.config.on_nan
        self.observer = Observer(self.method)
        self._kept_at = self._clock = time.perf_counter()
        self.cpu_began: float | None = time.process_time()  # None for runs of several sittings
        self._kept_step = 0

    def continue_from(self, state: RunState | None) -> None:
        """Resume a run from the state of its checkpoint, or from the start if it never came to one."""
        assert self.folder is not None
        self.folder.rewind(0 if state is None else state.metrics)
        if state is not None:
            self.state, self.engine.skips, self._kept_step = state, state.skips, self.method.steps
            self.cpu_began = None

    def go(self, stop: StopRequest, until: int | None = None) -> None:
        """Train to the end, or to that of epoch ``until``. Whatever ends it earlier leaves the last good checkpoint behind."""
        state, last = self.state, self.config.epochs if until is None else min(until, self.config.epochs)
        if self.method.steps == 0:
            state.active_min = state.active_max = sum(state.initial)
            self._record_wiring(0, 0)
        try:
            while state.epoch <= last:
                self._epoch(stop)
        except (DivergedError, WiringError) as error:
            raise type(error)(f"{error}{self._last_good()}") from error

    def _epoch(self, stop: StopRequest) -> None:
        config, state, task = self.config, self.state, self.task
        first = (state.epoch - 1) * task.per_epoch
        lr = config.lr * task.lr_scale
        lrs = [lr * config.lr_factor((first + i) / max(1, task.steps - 1)) for i in range(task.per_epoch)]
        task.begin_epoch(state.epoch, self.engine)
        if state.taken == 0:
            self._look()
        if state.taken < task.per_epoch:
            began = time.perf_counter()
            try:
                for part in task.take_steps(self.engine, state.epoch, lrs, state.taken, stop):
                    state.training_seconds += time.perf_counter() - began
                    self._note(part)
                    if state.taken < task.per_epoch:  # after the last step comes the evaluation first
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
        state.active_min, state.active_max = min(state.active_min, part.active_min), max(state.active_max, part.active_max)
        state.skipped += len(part.skipped)
        state.skips = self.engine.skips
        for skip in part.skipped:
            self._metric("skipped", step=skip.step, where=skip.where)
        if state.taken % self.task.window == 0 or state.taken == self.task.per_epoch:
            self._metric("window", **state.window.as_record(), deaths=self._deaths())
            state.window = Tally()
            self._look()
        self._tell(part.loss, None)

    def _deaths(self) -> list[int] | None:
        """Of each layer, those that are gone since the last window; None where a method does not count newborns."""
        before, now = self.state.layer_active, self.method.layer_active()
        self.state.layer_active = now
        counts = zip(self.state.window.newborns, before, now, strict=True)
        return [new - (b - a) for new, a, b in counts] if self.method.counts_newborns else None

    def _look(self) -> None:
        self.task.look(self.state.epoch, self.state.taken, self.state.figures, self._metric)

    def _end_epoch(self, lr: float) -> None:
        state = self.state
        self._check_finite()
        for wiring in wirings(self.model):
            wiring.check()
        measured = self.task.measure(state.epoch, state.figures, self._metric)
        loss = measured.get("test_loss")
        if loss is not None and not math.isfinite(loss):
            said = f"the test loss (={loss}) after epoch {state.epoch} must be a finite number"
            raise DivergedError(f"{said}; try a lower learning rate (now {lr:g})")
        step, active = state.epoch * self.task.per_epoch, self.method.layer_active()
        told = {"epoch": state.epoch, "step": step, "train_loss": state.whole.mean_loss, **measured, "lr": lr}
        counts = {"active": sum(active), "rewired": sum(state.whole.newborns), "layer_active": active}
        self._metric("epoch", **told, **counts, seconds=self.measure())
        self._record_wiring(state.epoch, step)
        self._tell(state.whole.mean_loss or 0.0, state.figures.get("test_accuracy"))
        state.epoch, state.taken, state.whole = state.epoch + 1, 0, Tally()

    def measure(self) -> float:
        """Seconds of all sittings up to now."""
        now = time.perf_counter()
        self.state.seconds, self._clock = self.state.seconds + now - self._clock, now
        return self.state.seconds

    def _keep(self, stop: StopRequest) -> None:
        """Write a checkpoint if one is due, or if the run was asked to stop; then it stops."""
        if self.folder is None:
            return
        config, step, every = self.config, self.method.steps, self.config.checkpoint_every
        due = every is not None and step // every > self._kept_step // every
        stopping = stop() and self.state.epoch <= config.epochs  # a run at its end is better finished
        if stopping or due or (0 < config.checkpoint_seconds <= time.perf_counter() - self._kept_at):
            self.write_checkpoint()
            self._kept_at, self._kept_step = time.perf_counter(), step
        if stopping:
            assert stop.signal is not None
            said = f"interrupted after step {step} of {self.task.steps}; go on with --resume --out {self.folder.path}"
            raise Interrupted(said, 128 + stop.signal)

    def write_checkpoint(self) -> None:
        assert self.folder is not None
        self._check_finite()
        self.measure()
        self.state.metrics = self.folder.position()
        # The loop draws nothing from torch's generator, so its state is no part of the run.
        extra = checkpoint_extra(self.config, self.engine.name, self.state, self.observer, self.task)
        save(self.folder.checkpoint, method=self.method, extra=extra, random_state=False)

    def _check_finite(self) -> None:
        """Weights can be lost while the loss still looks well: units that are off hide them. So can moments: the square of
        a large gradient is infinite, and from then on such a weight stands still."""
        broken, state = broken_parameter(self.model), broken_state(self.model, self.method)
        if broken or state:
            what = f"{broken} are" if broken else f"{state} is"
            raise DivergedError(f"{what} not finite after step {self.method.steps}; try a lower learning rate")

    def _last_good(self) -> str:
        """What is left after a failure, for the error to say."""
        if self.folder is None:
            return ""
        if not self.folder.checkpoint.exists() and self.state.epoch > 1:
            try:
                self.write_checkpoint()  # if the weights before the failure are good, they are kept
            except (DivergedError, CheckpointError, WiringError, OSError):
                return ""
        return f"; the last good checkpoint is kept in {self.folder.partial}" if self.folder.checkpoint.exists() else ""

    def _metric(self, kind: str, **values: object) -> None:
        if self.folder is not None:
            self.folder.metric(kind, **values)
        if self.recorder is not None:
            self.recorder(kind, values)

    def _record_wiring(self, epoch: int, step: int) -> None:
        """Where the connections are and how old; with the inputs, the picture of where the network looks."""
        seen = None if self.folder is None else self.observer.look(epoch)
        if seen is not None:
            self._metric("wiring", epoch=epoch, step=step, shape=list(self.task.input_shape), **seen)

    def _tell(self, loss: float, accuracy: float | None) -> None:
        if self.listener is not None:
            active, steps, epochs = sum(self.method.layer_active()), self.task.steps, self.config.epochs
            self.listener(RunProgress(self.method.steps, steps, self.state.epoch, epochs, loss, accuracy, active))
