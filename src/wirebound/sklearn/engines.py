"""How an estimator trains: the engine that fits its loss, and the epochs that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import Engine, ModuleEngine
from wirebound.methods import Method
from wirebound.ops import philox
from wirebound.ops.philox import Stream
from wirebound_lab.run.config import ConfigError, TrainConfig

Loss = Callable[..., Tensor]  # of outputs and targets; knows reduction="none"

LOSSES: dict[str, Loss] = {
    "cross-entropy": F.cross_entropy,
    "binary-cross-entropy": F.binary_cross_entropy_with_logits,
    "mean-square": F.mse_loss,
}


class WeightedEngine(ModuleEngine):
    """Steps of ordinary modules on the mean of weight · loss, which the fused steps do not know.

    Weights have mean 1 over all the data. A batch is divided by its size, not by the weights that happen to be in it, so
    that its gradient is on average that of the weighted mean loss.

    Args:
        model: the network.
        method: how it is trained.
        x: inputs, [examples, features].
        y: class numbers [examples], or labels or targets [examples, outputs].
        loss: a name in ``LOSSES``.
        weights: [examples], or [examples, outputs]; None for all the same.
    """

    def __init__(self, model: nn.Module, method: Method, x: Tensor, y: Tensor, loss: str, weights: Tensor | None) -> None:
        super().__init__(model, method, x, y)
        self.loss = LOSSES[loss]
        self.weights = weights if weights is None or weights.dim() == y.dim() else weights.unsqueeze(1)

    def batch_loss(self, batch: Tensor) -> Tensor:
        each = self.loss(self.model(self.x[batch]), self.y[batch], reduction="none")
        return (each if self.weights is None else each * self.weights[batch]).mean()


def choose_engine(
    wanted: str, model: nn.Module, method: Method, loss: str, x: Tensor, y: Tensor, weights: Tensor | None
) -> Engine:
    """The fused path where it can do this and ``wanted`` is not ``"module"``."""
    special = "rows or classes are weighted" if weights is not None else ""
    if not special and loss == "binary-cross-entropy":
        special = "y has several labels"
    reason = special or why_not_fused(model, method)
    if wanted == "fused" and reason:
        raise ConfigError(f"engine (='fused') cannot run this: {reason}")
    if special:
        return WeightedEngine(model, method, x, y, loss, weights)
    return ModuleEngine(model, method, x, y) if wanted == "module" or reason else FusedEngine(model, method, x, y)


def epoch_losses(
    engine: Engine, config: TrainConfig, steps: int, examples: int, epochs: int, constant: bool
) -> Iterator[float]:
    """Train epoch by epoch, and give the mean loss of each.

    ``steps`` were taken before, which the order of the examples goes by. The learning rate is that of the schedule over
    all ``epochs``, or the first one throughout.
    """
    batch = min(config.batch_size, examples)
    per_epoch = -(-examples // batch)
    last = max(1, epochs * per_epoch - 1)
    orders = _orders(examples, epochs, config.seed, steps)
    for epoch in range(epochs):
        first = epoch * per_epoch
        lrs = [config.lr * (1.0 if constant else config.lr_factor((first + i) / last)) for i in range(per_epoch)]
        losses = [loss for window in engine.epoch(next(orders), lrs, batch, per_epoch) for loss in window.losses]
        yield sum(losses) / max(1, len(losses))


def _orders(examples: int, epochs: int, seed: int, step: int) -> Iterator[Tensor]:
    """The order of the examples in each epoch, drawn for many epochs at a time: of small data, drawing is most of it."""
    at_once = max(1, min(epochs, (1 << 20) // examples))
    for start in range(0, epochs, at_once):
        keys = philox.words(seed, Stream.ORDER, step + start, at_once * examples, torch.device("cpu"))
        yield from torch.argsort(keys.view(at_once, examples), dim=1, stable=True)
