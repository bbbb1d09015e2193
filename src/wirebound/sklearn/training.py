"""How an estimator trains: the engine that fits its loss, the epochs that it takes, and when to stop early."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import Engine, ModuleEngine
from wirebound.engine.rows import SparseRows
from wirebound.methods import Method
from wirebound.ops import philox
from wirebound.ops.philox import Stream
from wirebound.optim.named import SCHEDULES

Loss = Callable[..., Tensor]  # of outputs and targets; knows reduction="none"


def choose_engine(
    wanted: str, model: nn.Module, method: Method, loss: Loss, x: Tensor | SparseRows, y: Tensor,
    weights: Tensor | None,
) -> Engine:  # fmt: skip
    """The fused path where it can do this and ``wanted`` is not ``"module"``; ``weights`` are [examples(, outputs)].

    Weights have mean 1 over all the data. A batch is divided by its size, not by the weights that happen to be in it:
    its gradient is on average that of the weighted mean loss.
    """
    several = "y has several labels" if loss is F.binary_cross_entropy_with_logits else ""
    special = several if weights is None else "rows or classes are weighted"
    reason = special or why_not_fused(model, method, isinstance(x, SparseRows))
    if wanted == "fused" and reason:
        raise ValueError(f"engine (='fused') cannot run this: {reason}")
    if not special:
        return ModuleEngine(model, method, x, y) if wanted == "module" or reason else FusedEngine(model, method, x, y)
    factors = weights if weights is None or weights.dim() == y.dim() else weights.unsqueeze(1)

    def weighted(outputs: Tensor, rows: Tensor) -> Tensor:
        each = loss(outputs, y[rows], reduction="none")
        return (each if factors is None else each * factors[rows]).mean()

    return ModuleEngine(model, method, x, torch.arange(len(y)), weighted)


def epoch_losses(
    engine: Engine, settings: dict[str, Any], steps: int, examples: int, epochs: int, constant: bool
) -> Iterator[float]:
    """Train epoch by epoch, and give the mean loss of each; ``steps`` were taken before.

    The learning rate is that of the schedule over all ``epochs``, or a ``constant``: the first one throughout.
    """
    batch = min(settings["batch_size"], examples)
    per_epoch = -(-examples // batch)
    last = max(1, epochs * per_epoch - 1)
    lr, final, factor = settings["learning_rate"], settings["final_lr"], SCHEDULES[settings["schedule"]]
    orders = _orders(examples, epochs, settings["seed"], steps)
    for first in range(0, epochs * per_epoch, per_epoch):
        lrs = [lr * (1.0 if constant else factor((first + i) / last, final)) for i in range(per_epoch)]
        losses = [loss for window in engine.epoch(next(orders), lrs, batch, per_epoch) for loss in window.losses]
        yield sum(losses) / max(1, len(losses))


def _orders(examples: int, epochs: int, seed: int, step: int) -> Iterator[Tensor]:
    """The order of the examples in each epoch, drawn for many epochs at once: of small data, drawing is most of it."""
    at_once = max(1, min(epochs, (1 << 20) // examples))
    for start in range(0, epochs, at_once):
        keys = philox.words(seed, Stream.ORDER, step + start, at_once * examples, torch.device("cpu"))
        yield from torch.argsort(keys.view(at_once, examples), dim=1, stable=True)


class EarlyStopping:
    """Keeps model, optimiser state and method state as they were at the best score, as ``MLPClassifier`` does.

    ``score`` gives the validation score of the model as it is now; training ends after more than ``patience`` epochs
    without one that is better by ``tol``.
    """

    def __init__(self, method: Method, score: Callable[[], float], patience: int, tol: float) -> None:
        self.score, self.patience, self.tol = score, patience, tol
        self.parts: tuple[Any, ...] = (method.model, method.optimizer, method)
        self.scores: list[float] = []
        self.best, self.without_gain = -math.inf, 0
        self._states: list[Any] = []

    def after_epoch(self) -> bool:
        """Note the score after an epoch; whether training should end."""
        score = self.score()
        self.scores.append(score)
        self.without_gain = self.without_gain + 1 if score < self.best + self.tol else 0
        if score > self.best:
            self.best = score
            self._states = copy.deepcopy([part.state_dict() for part in self.parts])
        return self.without_gain > self.patience

    def restore(self) -> None:
        """Put back what there was at the best score."""
        for part, state in zip(self.parts, self._states, strict=False):  # no state where no score was a number
            part.load_state_dict(state)
