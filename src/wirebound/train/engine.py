"""How the steps of a run are taken: by ordinary modules here, or fused in one native call (``fused.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.methods import Method
from wirebound.ops import philox, uses_native
from wirebound.ops.philox import Stream
from wirebound.wiring import WiringError


class DivergedError(ArithmeticError):
    """The loss is no longer a finite number; the message says since which step, and what to try."""


@dataclass(frozen=True)
class Window:
    """Some steps in a row, as they are recorded."""

    step_from: int
    step_to: int
    loss: float
    active_min: int
    active_max: int
    newborns: list[int]  # of each layer, in all these steps


class Engine(Protocol):
    """Takes the steps of an epoch and reports them in windows."""

    name: str

    def epoch(self, order: Tensor, lrs: Sequence[float], batch_size: int, window: int) -> Iterator[Window]: ...


def data_order(examples: int, seed: int, epoch: int) -> Tensor:
    """The order of the training examples in an epoch: the same for every machine and torch version."""
    keys = philox.words(seed, Stream.ORDER, epoch, examples, torch.device("cpu"))
    return torch.argsort(keys, stable=True)


def diverged(step: int, loss: float, lr: float) -> DivergedError:
    return DivergedError(
        f"the loss (={loss}) in step {step} must be a finite number: the weights before this step are kept; "
        f"try a lower learning rate (now {lr:g})"
    )


class ModuleEngine:
    """The training loop that a user would write, step by step."""

    def __init__(self, model: nn.Module, method: Method, x: Tensor, y: Tensor) -> None:
        self.model, self.method, self.x, self.y = model, method, x, y
        native = uses_native(next(model.parameters()))
        self.name = "module" if native else "reference"

    def epoch(self, order: Tensor, lrs: Sequence[float], batch_size: int, window: int) -> Iterator[Window]:
        self.model.train()
        losses: list[Tensor] = []
        active: list[int] = []
        newborns: list[int] = []
        for number, batch in enumerate(order.split(batch_size)):
            for group in self.method.optimizer.param_groups:
                group["lr"] = lrs[number]
            loss = F.cross_entropy(self.model(self.x[batch]), self.y[batch])
            if not torch.isfinite(loss):
                raise diverged(self.method.steps + 1, loss.item(), lrs[number])
            loss.backward()
            info = self.method.step()
            self.method.zero_grad()
            if info.budget is not None and info.active != info.budget:
                raise WiringError(f"{info.active} connections are active in step {info.step}, not K (={info.budget})")
            losses.append(loss.detach())
            active.append(info.active)
            newborns = [a + b for a, b in zip(newborns or [0] * len(info.layer_rewired), info.layer_rewired, strict=True)]
            if len(losses) == window or number == len(lrs) - 1:
                mean = torch.stack(losses).mean().item()
                first = info.step - len(losses) + 1
                yield Window(first, info.step, mean, min(active), max(active), newborns)
                losses, active, newborns = [], [], []
