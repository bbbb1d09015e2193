"""A step whose batch goes through the model in pieces, so that only one piece's activations exist at a time."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from wirebound.engine.modules import Batch, ModuleEngine, broken_gradient, where_not_finite
from wirebound.methods import Method


class AccumulatingEngine(ModuleEngine):
    """Gradients of ``pieces`` parts of each batch, one after the other, added up: those of the whole batch.

    A method that grows by the gradient of dormant connections sees the last piece alone: what it would keep of each is as
    large as its activations.
    """

    def __init__(self, model: nn.Module, method: Method, loss: Callable[..., Tensor], pieces: int) -> None:
        super().__init__(model, method, loss=loss)
        self.pieces = pieces

    def _gradients(self, batch: Batch) -> tuple[float, str]:
        size, total = -(-len(batch.y) // self.pieces), 0.0
        split: list[tuple[Any, ...]] = [tensor.split(size) for tensor in (*batch.inputs, batch.y)]
        for *inputs, y in zip(*split, strict=True):
            self.method.forget_gradients()
            loss = self.loss(self.model(*inputs), y) * (len(y) / len(batch.y))
            total += loss.item()
            if not math.isfinite(total):
                return total, where_not_finite(self.model, *inputs)
            loss.backward()  # type: ignore[no-untyped-call]
        return total, broken_gradient(self.model) if self.on_nan == "skip" else ""
