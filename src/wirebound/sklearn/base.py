"""What classifier and regressor share: settings, scaling, training on the engines of ``wirebound.train``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from wirebound.export.network import Layer, Network, read_network
from wirebound.methods import Method
from wirebound.nn.part import wirings
from wirebound.ops import philox
from wirebound.ops.philox import Stream
from wirebound.sklearn.compat import validate
from wirebound.sklearn.importance import path_strength
from wirebound.train.config import ConfigError, TrainConfig
from wirebound.train.engine import Engine, ModuleEngine
from wirebound.train.fused import FusedEngine, why_not_fused
from wirebound.train.models import build_method, build_model, build_optimizer

STEPS = 1500  # of a fit whose number of epochs is not given, if that is between
EPOCHS = (5, 200)
SMALLEST = 500  # connections, where neither connectivity nor budget is given
SHARE = 0.1
_SETTINGS = (
    *("method", "scope", "allocation", "newborns", "activation", "bias", "init", "optimizer", "schedule"),
    *("final_lr", "momentum", "weight_decay", "l1", "temperature", "rewire_every", "engine"),
)


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
    engine : ``"auto"``, ``"fused"`` or ``"module"``.
    random_state : an int gives the same network every time, bit for bit.

    Attributes
    ----------
    model_ : the trained ``torch.nn.Module``; it takes standardised inputs.
    budget_ : number of connections; ``n_features_in_``; ``n_iter_``, epochs; ``n_steps_``; ``loss_curve_``, the mean
    loss of each epoch; ``scaler_`` (None without ``standardize``); ``feature_importances_``.
    """

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
        self.engine = engine
        self.random_state = random_state

    # Settings

    def _config(self, examples: int, inputs: int, outputs: int) -> TrainConfig:
        """The settings as those of a run, which checks them."""
        sizes = self.hidden_layer_sizes
        hidden = [int(size) for size in (sizes if isinstance(sizes, Iterable) else (sizes,))]
        batch = 32 if self.batch_size is None else int(self.batch_size)
        epochs = self.epochs
        if epochs is None:
            epochs = min(max(round(STEPS / -(-examples // max(1, batch))), EPOCHS[0]), EPOCHS[1])
        settings = {name: getattr(self, name) for name in _SETTINGS}
        config = TrainConfig(
            hidden=hidden,
            connectivity=None if self.connectivity is None else float(self.connectivity),
            budget=None if self.budget is None else int(self.budget),
            epochs=int(epochs),
            batch_size=batch,
            lr=float(self.learning_rate),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            **settings,
        )
        if self.connectivity is None and self.budget is None:
            config.connectivity = SHARE  # to be checked with the others
            config.check()
            possible = sum(a * b for a, b in itertools.pairwise([inputs, *hidden, outputs]))
            config.connectivity, config.budget = None, min(possible, max(SMALLEST, round(SHARE * possible)))
        return config.check()

    # Training

    def _start(self, examples: int, outputs: int) -> None:
        """A new network and its method."""
        config = self._config(examples, self.n_features_in_, outputs)
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

    def _learn(self, x: Tensor, y: Tensor, epochs: int, constant: bool) -> None:
        """Train for so many epochs, with the learning rate of the schedule or the first one throughout."""
        config, model, method = self._settings, self.model_, self._method
        reason = why_not_fused(model, method)
        if config.engine == "fused" and reason:
            raise ConfigError(f"engine (='fused') cannot run this: {reason}")
        fused = config.engine != "module" and not reason
        engine: Engine = FusedEngine(model, method, x, y) if fused else ModuleEngine(model, method, x, y)
        batch = min(config.batch_size, len(x))
        per_epoch = -(-len(x) // batch)
        last = max(1, epochs * per_epoch - 1)
        orders = _orders(len(x), epochs, config.seed, method.steps)
        for epoch in range(epochs):
            first = epoch * per_epoch
            lrs = [config.lr * (1.0 if constant else config.lr_factor((first + i) / last)) for i in range(per_epoch)]
            windows = engine.epoch(next(orders), lrs, batch, per_epoch)
            losses = [loss for window in windows for loss in window.losses]
            self.n_iter_ += 1
            self.loss_curve_.append(sum(losses) / max(1, len(losses)))
        model.eval()
        self.n_steps_ = method.steps
        self._network = read_network(model)

    def _scaled(self, X: np.ndarray, *, new: bool, more: bool) -> np.ndarray:
        """Inputs as the network sees them; ``new`` and ``more`` say whether the scaling is made of them."""
        if new:
            self.scaler_ = StandardScaler() if self.standardize else None
        if self.scaler_ is None:
            return X
        if new or more:
            self.scaler_.partial_fit(X)
        return self.scaler_.transform(X)

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate(self, X, reset=False, dtype=np.float64)

    def _outputs(self, X: Any) -> np.ndarray:
        """What the last layer gives, in double precision."""
        x = self._scaled(self._inputs(X), new=False, more=False)
        return self._network.forward(x, np.float64)

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
        layers = list(self._network.layers)
        if self.scaler_ is not None:
            first = layers[0]
            weights = first.weights / self.scaler_.scale_[first.columns]
            shift = np.bincount(first.rows, weights * self.scaler_.mean_[first.columns], first.n_out)
            layers[0] = _changed(first, weights, (0 if first.bias is None else first.bias) - shift)
        return Network(tuple(layers))


def _orders(examples: int, epochs: int, seed: int, step: int) -> Iterator[Tensor]:
    """The order of the examples in each epoch, drawn for many epochs at a time: of small data, drawing is most of it."""
    at_once = max(1, min(epochs, (1 << 20) // examples))
    for start in range(0, epochs, at_once):
        keys = philox.words(seed, Stream.ORDER, step + start, at_once * examples, torch.device("cpu"))
        yield from torch.argsort(keys.view(at_once, examples), dim=1, stable=True)


def _changed(layer: Layer, weights: np.ndarray, bias: np.ndarray) -> Layer:
    parts = (weights.astype(np.float32), np.asarray(bias, dtype=np.float32))
    return Layer(layer.name, layer.n_out, layer.n_in, layer.rows, layer.columns, *parts, layer.activation)


def as_tensor(x: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
