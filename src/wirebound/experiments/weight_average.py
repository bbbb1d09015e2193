"""A moving average of the weights that moves with the connections: where one is replaced, its average starts anew.

The averages are kept in the optimiser's state, so the rewiring carries them along like momenta, and checkpoints hold
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from wirebound.methods import Method

NAME = "average"


class WeightAverage:
    """The average of all parameters of a method's model, decay min(d, (1 + n)/(10 + n)) in step n, as TensorFlow's."""

    def __init__(self, method: Method, decay: float = 0.9999) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay (={decay}) must be in [0, 1)")
        self.method, self.decay = method, decay

    @torch.no_grad()
    def update(self) -> None:
        """After each step."""
        n = self.method.steps
        weight = 1 - min(self.decay, (1 + n) / (10 + n))
        for parameter, average in self._averages():
            average.lerp_(parameter, weight)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While this is open, the model has the averages as its weights; connections that are off stay off."""
        kept = []
        with torch.no_grad():
            for parameter, average in self._averages():
                kept.append((parameter, parameter.clone()))
                parameter.copy_(torch.where(parameter == 0, parameter, average) if parameter.dim() > 1 else average)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in kept:
                    parameter.copy_(value)

    def _averages(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        optimizer = self.method.optimizer
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state = optimizer.state[parameter]
                if NAME not in state:
                    state[NAME] = parameter.detach().clone()
                yield parameter, state[NAME]
