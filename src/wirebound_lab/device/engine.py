"""An engine whose steps a C trainer takes; after each window the model has the trainer's connections."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from wirebound.engine.modules import DivergedError, never
from wirebound.engine.window import StepWindow
from wirebound.export.device_network import load_into
from wirebound.methods import DeepR
from wirebound.methods.deep_r import pull_and_push
from wirebound_lab.device.machine import DeviceError, Machine, Report


class DeviceEngine:
    """Steps on a machine; one example each.

    ``x``: [examples, features], bytes or numbers as the trainer takes them; ``y``: labels.
    """

    def __init__(self, machine: Machine, model: nn.Module, method: DeepR, x: Tensor, y: Tensor, name: str, checked: bool = False) -> None:
        self.machine, self.model, self.method, self.name, self.checked = machine, model, method, name, checked
        self.x, self.y = x.reshape(len(x), -1).numpy(), y.numpy()
        self.on_nan, self.skips = "stop", 0
        self.last: Report = self._sync()  # the trainer has drawn its connections, or has got a state

    def epoch(
        self, order: Tensor, lrs: Sequence[float], batch_size: int, window: int, start: int = 0, pause: Callable[[], bool] = never
    ) -> Iterator[StepWindow]:
        """One pass over ``order``; see ``Engine``."""
        if batch_size != 1:
            raise ValueError(f"batch_size (={batch_size}) must be 1: a chip learns from one example at a time")
        while start < len(lrs):
            stop = min(start - start % window + window, len(lrs))
            chosen, first = order[start:stop].numpy(), self.method.steps + 1
            rates = np.array([self._rates(first + i, lr) for i, lr in enumerate(lrs[start:stop])])
            try:
                losses = self.machine.steps(self.x[chosen], self.y[chosen], rates, checked=self.checked).tolist()
            except DeviceError as error:
                if "WB_NOT_FINITE" in str(error):
                    raise DivergedError(f"{error} after step {first - 1}; try a lower learning rate (now {lrs[start]:g})") from error
                raise
            self.last = self._sync()
            self.method.steps += len(chosen)
            active = sum(self.last.active)
            mean = sum(losses) / len(losses)
            yield StepWindow(first, self.method.steps, mean, active, active, self.last.newborns, losses)
            start = stop

    def _rates(self, step: int, lr: float) -> tuple[float, float, float]:
        """η, ηα and √(2ηT) of a step, as the native kernels get them."""
        return (lr, *pull_and_push(self.method.l1[0], self.method.temperature[0], step, lr))

    def _sync(self) -> Report:
        report = self.machine.report()
        with torch.no_grad():
            load_into(self.machine.network, report.state, self.model)
        return report
