"""An average of the weights that moves with the connections, in the optimiser's state, as momenta do.

Averages by place (``torch.optim.swa_utils.AveragedModel``) mix different connections as soon as one has moved. Here that
of a newborn starts at 0, its weight while dormant; what a connection was before it died is not remembered.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wirebound.methods.method import Method
from wirebound.nn.sparse_layer import wirings

AVERAGE, UPDATES = "average", "average_updates"  # their names in the optimiser's state


class WeightAverage:
    """The average of all weights that a method trains, as a moving average or with equal weights.

    ``update()`` after each step, or after each epoch. The first takes the weights as they are; the n-th is

        average ← d · average + (1 − d) · θ,    d = min(decay, (1 + n) / (10 + n)),

    so that the first steps do not count for long (TensorFlow's rule), or d = (n − 1)/n without a decay: the mean.

    Args:
        method: the method that trains the model, after the steps of which it is updated.
        decay: d in the long run, in [0, 1); None for the mean of all updates, as in stochastic weight averaging.

    Buffers, such as the running statistics of batch norm, are those of the trained weights: take ``model()`` and
    ``torch.optim.swa_utils.update_bn(loader, averaged)``, which goes through the data once.
    """

    def __init__(self, method: Method, decay: float | None = 0.999) -> None:
        if decay is not None and not 0 <= decay < 1:
            raise ValueError(f"decay (={decay}) must be in [0, 1), or None for the mean")
        self.method, self.decay = method, decay
        self._open = False

    @property
    def updates(self) -> int:
        return max((state[UPDATES] for _, state in self._averaged()), default=0)

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights of now into the average; before the first step there is nothing to average."""
        if self._open:
            raise RuntimeError("update() must not be called while the average is in use: the weights are its own then")
        for parameter, state in self._moved():
            if AVERAGE not in state:
                state[AVERAGE], state[UPDATES] = parameter.detach().clone(), 1
                continue
            state[UPDATES] = n = state[UPDATES] + 1
            decay = (n - 1) / n if self.decay is None else min(self.decay, (1 + n) / (10 + n))
            _average(parameter, state).lerp_(parameter.detach(), 1 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While this is open, the model has the averages as its weights: evaluate it, but take no step."""
        outer, self._open = self._open, True
        kept: list[tuple[nn.Parameter, Tensor]] = []
        try:
            with torch.no_grad():
                for parameter, state in self._averaged():
                    off = self._off(parameter)
                    kept.append((parameter, parameter.detach().clone()))
                    average = _average(parameter, state)
                    parameter.copy_(average if off is None else average.masked_fill(off, 0))
            yield
        finally:
            self._open = outer
            with torch.no_grad():
                for parameter, value in kept:
                    parameter.copy_(value)

    def model(self) -> nn.Module:
        """A copy of the model with the averages as its weights and the same connections, to evaluate, keep or export."""
        with self.in_use():
            trained = self.method.model
            model = copy.deepcopy(trained.module if isinstance(trained, DistributedDataParallel) else trained)
        for parameter in model.parameters():
            parameter.grad = None
        return model

    def _off(self, parameter: nn.Parameter) -> Tensor | None:
        """Where a parameter holds no connection: places that are empty, weights that were pruned."""
        if self.method.plain:
            return parameter == 0 if parameter.dim() > 1 else None
        alive = next((w.alive for w in wirings(self.method.model) if w.theta is parameter), None)
        return None if alive is None else ~alive

    def _averaged(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        """The parameters that have an average, each with the state that holds it."""
        states = self.method.optimizer.state
        parameters = (p for group in self.method.optimizer.param_groups for p in group["params"])
        return ((p, states[p]) for p in parameters if AVERAGE in states.get(p, ()))

    def _moved(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        """The parameters that the optimiser has moved, each with its state."""
        # An optimiser makes the state of a parameter in its first step, if it is empty: so nothing of ours may be there
        # before. One that keeps none at all, as SGD without momentum, leaves it empty for ever.
        states = self.method.optimizer.state
        parameters = [p for group in self.method.optimizer.param_groups for p in group["params"]]
        keeps_none = self.method.steps > 0 and all({AVERAGE, UPDATES} >= set(states.get(p, ())) for p in parameters)
        return ((p, states[p]) for p in parameters if keeps_none or states.get(p))


def _average(parameter: nn.Parameter, state: dict[str, Any]) -> Tensor:
    """The average of a parameter, which follows it where the model was moved or converted."""
    average: Tensor = state[AVERAGE]
    if average.dtype is not parameter.dtype or average.device != parameter.device:
        average = state[AVERAGE] = average.to(parameter)
    return average
