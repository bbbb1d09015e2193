"""What classifier and regressor share: settings, scaling, training on the engines of ``wirebound_lab.run``."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from wirebound.export.network import Network, read_network
from wirebound.methods import Method
from wirebound.nn.sparse_layer import wirings
from wirebound.sklearn.compat import validate
from wirebound.sklearn.early_stopping import EarlyStopping
from wirebound.sklearn.engines import choose_engine, epoch_losses
from wirebound.sklearn.examples import Examples, held_out
from wirebound.sklearn.folding import fold_inputs
from wirebound.sklearn.importance import path_strength
from wirebound.sklearn.settings import read_config
from wirebound_lab.run.models import build_method, build_model, build_optimizer


class DeepREstimator(BaseEstimator):  # type: ignore[misc]
    """A network of linear layers inside a budget of connections.

    Parameters
    ----------
    hidden_layer_sizes : units of each hidden layer, a number or a tuple; ``()`` for none.
    connectivity : share of the possible connections that exist, in (0, 1]; or
    budget : their number. With neither, a tenth of the possible ones, but at least 500 (or all).
    method : ``"deep-r"``, ``"fixed"``, ``"set"``, ``"rigl"``, ``"dense"``, or another method of ``wirebound train``. All
        but the first two and dense take their steps through ordinary modules, which is slower.
    epochs : passes over the data; ``None`` takes as many as make about 1,500 steps, between 5 and 200.
    batch_size : examples in a step, or all if there are fewer; ``None`` takes 32.
    optimizer, learning_rate, schedule, final_lr, momentum, weight_decay : as in ``wirebound train``; the learning rate
        falls from ``learning_rate`` to ``final_lr`` times that.
    l1, temperature, rewire_every, newborns : of DEEP R. With Adam, whose steps are about as long as the learning rate,
        ``l1`` is the share of a step by which every connection is pulled towards 0.
    scope, allocation : one budget for the network or for each layer, and how it is shared out at the start. By default
        each layer keeps its part, and layers get equal parts, a small one at most all its connections: in a wide table
        nearly all positions are in the first layer, and a budget shared out by size would leave the last one empty.
    activation, bias, init : of the network.
    standardize : scale inputs to mean 0 and variance 1 inside of the estimator, by the training data. Turn it off if
        they are scaled already. Targets of a regression are always scaled inside.
    early_stopping : hold out some rows, and end training when the score on them no longer rises; the network is then the
        one that had the best score. ``epochs`` is the most that there will be, and the learning rate falls as if all came.
    validation_fraction : share of the rows that is held out, of each class alike.
    n_iter_no_change, tol : end after more than so many epochs in which the score did not rise by ``tol``.
    engine : ``"auto"``, ``"fused"`` or ``"module"``. Weights of rows or classes and several labels need modules.
    random_state : an int gives the same network every time, bit for bit.

    Attributes
    ----------
    model_ : the trained ``torch.nn.Module``; it takes standardised inputs.
    budget_ : number of connections; ``n_features_in_``; ``n_iter_``, epochs; ``n_steps_``; ``loss_curve_``, the mean
    loss of each epoch; ``scaler_`` (None without ``standardize``); ``feature_importances_``.
    validation_scores_, best_validation_score_ : after each epoch, and of the network kept; None without
    ``early_stopping``. ``n_iter_`` counts all epochs then, ``n_steps_`` the steps of the network kept.
    """

    validation_scores_: list[float] | None
    best_validation_score_: float | None

    def __init__(
        self,
        hidden_layer_sizes: int | tuple[int, ...] = (64,),
        *,
        connectivity: float | None = None,
        budget: int | None = None,
        method: str = "deep-r",
        epochs: int | None = None,
        batch_size: int | None = None,
        optimizer: str = "adam",
        learning_rate: float = 0.01,
        schedule: str = "cosine",
        final_lr: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        l1: float = 0.1,
        temperature: float = 0.0,
        rewire_every: int = 1,
        newborns: str = "share",
        scope: str = "layer",
        allocation: str = "equal",
        activation: str = "relu",
        bias: bool = True,
        init: str = "sparse-fan-in",
        standardize: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-4,
        engine: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.connectivity = connectivity
        self.budget = budget
        self.method = method
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.final_lr = final_lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.l1 = l1
        self.temperature = temperature
        self.rewire_every = rewire_every
        self.newborns = newborns
        self.scope = scope
        self.allocation = allocation
        self.activation = activation
        self.bias = bias
        self.init = init
        self.standardize = standardize
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.engine = engine
        self.random_state = random_state

    # Training

    def _fit(self, examples: Examples, outputs: int, classes: np.ndarray | None) -> None:
        """Train a new network; ``classes``, where rows have one, are held out for validation in equal shares."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        read_config(self, len(examples), self.n_features_in_, outputs, seed)  # what is wrong is said before rows are split
        held = None
        if self.early_stopping:
            examples, held = held_out(examples, self.validation_fraction, classes, seed)
        x = self._scaled(examples, new=True)
        y = self._targets(examples, new=True)
        self._start(len(examples), outputs, seed)
        stopping = None
        if held is not None:
            stopping = EarlyStopping(self._method, lambda: self._score_held(held), self.n_iter_no_change, self.tol)
        self._learn(x, y, examples.loss_weights(), self._settings.epochs, False, stopping)
        if stopping is not None:
            self.validation_scores_, self.best_validation_score_ = stopping.scores, stopping.best

    def _fit_more(self, examples: Examples, outputs: int) -> None:
        """One pass over these examples with a constant learning rate, by the network there is or a new one."""
        if self.early_stopping:
            raise ValueError("partial_fit does not support early_stopping=True")
        new = not self.__sklearn_is_fitted__()
        x = self._scaled(examples, new=new)
        y = self._targets(examples, new=new)
        if new:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._start(len(examples), outputs, seed)
        self._learn(x, y, examples.loss_weights(), 1, True)

    def _start(self, examples: int, outputs: int, seed: int) -> None:
        """A new network and its method."""
        self.__dict__.pop("_network", None)  # a fit that is broken off leaves an estimator that is not fitted
        config = read_config(self, examples, self.n_features_in_, outputs, seed)
        model = build_model(config, self.n_features_in_, outputs)
        per_epoch = -(-examples // min(config.batch_size, examples))
        self._method: Method = build_method(config, model, build_optimizer(config, model), per_epoch)
        self._settings = config
        self.model_ = model
        found = wirings(model)
        shapes = self._method.shapes
        self.budget_ = sum(w.budget for w in found) if found else sum(shape.possible for shape in shapes)
        self.n_iter_ = 0
        self.loss_curve_: list[float] = []
        self.validation_scores_ = self.best_validation_score_ = None

    def _learn(
        self,
        x: np.ndarray,
        y: Tensor,
        weights: np.ndarray | None,
        epochs: int,
        constant: bool,
        stopping: EarlyStopping | None = None,
    ) -> None:
        """Train for so many epochs, with the learning rate of the schedule or the first one throughout."""
        config, model, method = self._settings, self.model_, self._method
        parts = (as_tensor(x), y, None if weights is None else as_tensor(weights))
        engine = choose_engine(config.engine, model, method, self._loss, *parts)
        for loss in epoch_losses(engine, config, method.steps, len(x), epochs, constant):
            self.n_iter_ += 1
            self.loss_curve_.append(loss)
            if stopping is not None and stopping.after_epoch():
                break
        if stopping is not None:
            stopping.restore()
        model.eval()
        self.n_steps_ = method.steps
        self._network = read_network(model)

    def _score_held(self, held: Examples) -> float:
        x = held.X if self.scaler_ is None else self.scaler_.transform(held.X)
        return self._score_outputs(read_network(self.model_).forward(x, np.float64), held)

    @property
    @abstractmethod
    def _loss(self) -> str:
        """What is minimised, a name in ``engines.LOSSES``."""

    @abstractmethod
    def _targets(self, examples: Examples, *, new: bool) -> Tensor:
        """The targets as the network learns them; ``new`` says that they are the first."""

    @abstractmethod
    def _score_outputs(self, outputs: np.ndarray, examples: Examples) -> float:
        """What ``score`` would say if the network gave these outputs."""

    def _scaled(self, examples: Examples, *, new: bool) -> np.ndarray:
        """Inputs to learn from as the network sees them; the scaling is made of them, and of those before unless new."""
        if new:
            self.scaler_ = StandardScaler() if self.standardize else None
        if self.scaler_ is None:
            return examples.X
        self.scaler_.partial_fit(examples.X, sample_weight=examples.sample_weight)
        return self.scaler_.transform(examples.X)

    # Use

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_network")

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate(self, X, reset=False, dtype=np.float64)

    def _outputs(self, X: Any) -> np.ndarray:
        """What the last layer gives, in double precision."""
        x = self._inputs(X)
        return self._network.forward(x if self.scaler_ is None else self.scaler_.transform(x), np.float64)

    # What was learnt

    @property
    def feature_importances_(self) -> np.ndarray:
        """Strength of all paths from an input to the outputs (``path_strength``), for standardised inputs; sum 1."""
        check_is_fitted(self)
        return path_strength(self._network)

    def to_network(self) -> Network:
        """The network with the scaling of inputs and targets folded into its weights, for ``wirebound.export``.

        It takes X as it is and gives what ``predict`` gives (regressor), or logits (classifier).
        """
        check_is_fitted(self)
        return self._network if self.scaler_ is None else fold_inputs(self._network, self.scaler_)


def as_tensor(x: np.ndarray) -> Tensor:
    """In single precision, which is what networks learn in."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(single).all():
        raise ValueError("X and y must be small enough for single precision (3.4e38), once they are scaled")
    return torch.from_numpy(single)
