"""Early stopping: the best state of a training by its validation score, and when to give up, as ``MLPClassifier`` does."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from wirebound.methods import Method


class EarlyStopping:
    """Keeps what training had when its score was best.

    Wiring, θ, biases, the optimiser's state and the method's are kept and put back together: a θ without the wiring that
    it belongs to is worth nothing, and training can be continued from there.

    Args:
        method: the training.
        score: the validation score of its model as it is now.
        patience: epochs without a better score before it ends.
        tol: by how much a score must be better to count as better.
    """

    def __init__(self, method: Method, score: Callable[[], float], patience: int, tol: float) -> None:
        self.method, self.score, self.patience, self.tol = method, score, patience, tol
        self.scores: list[float] = []
        self.best = -math.inf
        self.without_gain = 0
        self._state: tuple[Any, Any, Any] | None = None

    def after_epoch(self) -> bool:
        """Note the score after an epoch; whether training should end."""
        score = self.score()
        self.scores.append(score)
        self.without_gain = self.without_gain + 1 if score < self.best + self.tol else 0
        if score > self.best:
            self.best = score
            method = self.method
            states = (method.model.state_dict(), method.optimizer.state_dict(), method.state_dict())
            self._state = copy.deepcopy(states)
        return self.without_gain > self.patience

    def restore(self) -> None:
        """Put back what there was at the best score."""
        if self._state is not None:
            self.method.model.load_state_dict(self._state[0])
            self.method.optimizer.load_state_dict(self._state[1])
            self.method.load_state_dict(self._state[2])
