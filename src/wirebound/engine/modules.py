"""How the steps of a run are taken: by ordinary modules here, or fused in one native call (``fused.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.engine.diagnose import broken_gradient, broken_parameter, where_not_finite
from wirebound.engine.window import Skip, StepWindow, mean
from wirebound.methods import Method, StepInfo
from wirebound.nn.sparse_layer import wirings
from wirebound.ops import philox, uses_native
from wirebound.ops.philox import Stream
from wirebound.wiring import WiringError

__all__ = ["DivergedError", "Engine", "ModuleEngine", "StepWindow", "data_order", "diverged", "never"]

MOST_SKIPPED = 10  # steps in a row: after that, something else is wrong


class DivergedError(ArithmeticError):
    """Numbers are no longer finite; the message says in which step and layer, and what to try."""

    done: StepWindow | None = None  # the steps before, which were taken and not reported yet


def never() -> bool:
    return False


class Engine(Protocol):
    """Takes the steps of an epoch and reports them in windows.

    ``start`` is the step of the epoch to begin with, ``window`` counts from the epoch's beginning. An engine may end a
    window early: after any step when ``pause`` says so, or where its own stretches end. Which steps fall into which
    call must not change a single number.
    """

    name: str
    on_nan: str  # "stop" or "skip": what to do about a step that is not finite
    skips: int  # steps left out in a row

    def epoch(
        self,
        order: Tensor,
        lrs: Sequence[float],
        batch_size: int,
        window: int,
        start: int = 0,
        pause: Callable[[], bool] = never,
    ) -> Iterator[StepWindow]: ...


def data_order(examples: int, seed: int, epoch: int) -> Tensor:
    """The order of the training examples in an epoch: the same for every machine and torch version."""
    keys = philox.words(seed, Stream.ORDER, epoch, examples, torch.device("cpu"))
    return torch.argsort(keys, stable=True)


def count_active(model: nn.Module, method: Method) -> int:
    """Connections that are active now."""
    found = wirings(model)
    return sum(w.active for w in found) if found else sum(method.layer_active())


def diverged(step: int, loss: float, lr: float, where: str) -> DivergedError:
    return DivergedError(
        f"the loss (={loss}) in step {step} must be a finite number, first at fault: {where}; the weights before this "
        f"step are kept; try a lower learning rate (now {lr:g}), or on_nan='skip'"
    )


def skipped_too_often(step: int, where: str) -> DivergedError:
    return DivergedError(
        f"{MOST_SKIPPED} steps in a row had to be skipped, the last is step {step}, at fault: {where}; "
        "try a lower learning rate"
    )


class _Open:
    """A window while steps come in."""

    def __init__(self, model: nn.Module, method: Method) -> None:
        self.model, self.method = model, method
        self.first = method.steps + 1
        self.losses: list[float] = []
        self.active: list[int] = []
        self.newborns = [0] * len(method.shapes)
        self.skipped: list[Skip] = []

    def add(self, loss: float, info: StepInfo) -> None:
        self.losses.append(loss)
        self.active.append(info.active)
        self.newborns = [a + b for a, b in zip(self.newborns, info.layer_rewired, strict=True)]

    def close(self) -> StepWindow | None:
        """The window, or None if there was no step."""
        last = self.method.steps
        if last < self.first:
            return None
        active = self.active or [count_active(self.model, self.method)]
        least, most = min(active), max(active)
        return StepWindow(self.first, last, mean(self.losses), least, most, self.newborns, self.losses, self.skipped)


class ModuleEngine:
    """The training loop that a user would write, step by step."""

    def __init__(self, model: nn.Module, method: Method, x: Tensor, y: Tensor) -> None:
        self.model, self.method, self.x, self.y = model, method, x, y
        self.loss = F.mse_loss if y.is_floating_point() else F.cross_entropy  # as in the fused path
        native = uses_native(next(model.parameters()))
        self.name = "module" if native else "reference"
        self.on_nan = "stop"
        self.skips = 0  # in a row

    def epoch(
        self,
        order: Tensor,
        lrs: Sequence[float],
        batch_size: int,
        window: int,
        start: int = 0,
        pause: Callable[[], bool] = never,
    ) -> Iterator[StepWindow]:
        self.model.train()
        now = _Open(self.model, self.method)
        for number, batch in enumerate(order[start * batch_size :].split(batch_size), start):
            for group in self.method.optimizer.param_groups:
                group["lr"] = lrs[number]
            loss, where = self._gradients(batch)
            if where:
                try:
                    now.skipped.append(self._skip(loss, lrs[number], where))
                except DivergedError as error:
                    error.done = now.close()
                    raise
            else:
                now.add(loss, self._step())
            self.method.zero_grad()
            if (number + 1) % window == 0 or number == len(lrs) - 1 or pause():
                done = now.close()
                assert done is not None
                yield done
                now = _Open(self.model, self.method)

    def _step(self) -> StepInfo:
        try:
            info = self.method.step()
        except FloatingPointError as error:
            raise DivergedError(f"{error}; at fault: {broken_parameter(self.model)}") from error
        if info.budget is not None and info.active != info.budget:
            raise WiringError(f"{info.active} connections are active in step {info.step}, not K (={info.budget})")
        self.skips = 0
        return info

    def batch_loss(self, batch: Tensor) -> Tensor:
        """What is minimised, for the examples with these numbers."""
        return self.loss(self.model(self.x[batch]), self.y[batch])

    def _gradients(self, batch: Tensor) -> tuple[float, str]:
        """The loss of a batch, whose gradients are left in place, and what is not finite about it, if anything."""
        loss = self.batch_loss(batch)
        value = loss.item()
        if not torch.isfinite(loss):
            return value, where_not_finite(self.model, self.x[batch])
        loss.backward()
        return value, broken_gradient(self.model) if self.on_nan == "skip" else ""

    def _skip(self, loss: float, lr: float, where: str) -> Skip:
        """Leave a step out. It counts as a step all the same: order of data and random numbers go by its number."""
        step = self.method.steps + 1
        if self.on_nan != "skip":
            raise diverged(step, loss, lr, where)
        self.skips += 1
        if self.skips >= MOST_SKIPPED:
            raise skipped_too_often(step, where)
        self.method.steps = step
        return Skip(step, where)
