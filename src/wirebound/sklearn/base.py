"""What classifier and regressor share: parameters, scaling, training, and what the trained network says."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from wirebound.engine.rows import SparseRows, first_layer, start_where_inputs_are
from wirebound.export.network import Network, read_network
from wirebound.methods import METHODS, RunLength
from wirebound.nn.perceptron import draw_weights, perceptron
from wirebound.nn.sparse_layer import wirings
from wirebound.nn.sparsify import sparsify
from wirebound.optim.named import make_optimizer
from wirebound.sklearn.checks import Examples, held_out, read_parameters, validate
from wirebound.sklearn.inputs import as_inputs, as_tensor, fit_scaler, how_to_check, make_scaler, scaled
from wirebound.sklearn.training import EarlyStopping, Loss, choose_engine, epoch_losses

# Of a fit whose number of epochs is not given: about so many steps, of dense tables and of sparse rows, between these epochs.
STEPS, EPOCHS = (1500, 6000), (5, 200)


@dataclass(eq=False, repr=False)
class DeepREstimator(BaseEstimator):  # type: ignore[misc]
    """A network of linear layers inside a budget of connections.

    Parameters
    ----------
    hidden_layer_sizes : units of each hidden layer, a number or a tuple; ``()`` for none.
    connectivity : share of the possible connections that exist, in (0, 1]; or
    budget : their number. With neither, a tenth of the possible ones, or of the nonzeros of sparse rows if these are fewer,
        but at least 500 (or all).
    method : ``"deep-r"``, ``"fixed"``, ``"set"``, ``"rigl"``, ``"gse"``, ``"dense"``, or another of ``wirebound.methods.METHODS``.
        All but ``"deep-r"``, ``"fixed"`` and ``"dense"`` take their steps through ordinary modules, which is slower.
    method_settings : a dict of further settings that the method declares, such as ``{"fraction": 0.2}`` for ``"set"``.
    epochs : passes over the data; ``None`` takes as many as make about 1,500 steps (sparse rows: 6,000), between 5 and 200.
    batch_size : examples in a step, or all if there are fewer; ``None`` takes 32.
    optimizer, learning_rate, schedule, final_lr, momentum, weight_decay : as in ``wirebound train``; the learning rate
        falls from ``learning_rate`` (``None``: 0.01, with sparse rows 0.03) to ``final_lr`` times that.
    l1, temperature, rewire_every, newborns : of the method, where it has them. With Adam ``l1`` is the share of a step
        by which every connection is pulled towards 0 (``None``: 0.1, with sparse rows 0.03); ``l1="auto"`` lets DEEP R find it by its turnover
        (with a number, newborns start with ``newborn_moments="own"``, which numbers were chosen for).
        ``temperature=None`` takes the method's own noise.
    scope, allocation : one budget for the network or for each layer, and how it is shared out at the start. By default
        each layer keeps an equal part: shared out by size, the last layer of a wide table would be left empty.
    activation, bias, init : of the network.
    standardize : scale inputs to mean 0 and variance 1 by the training data, or sparse ones, whose zeros must stay, to a largest
        magnitude of 1; ``None``: dense ones only, since rows of texts are normalised already, and large weights for rare words
        are learnt by heart. Targets of a regression are always scaled.
    early_stopping : hold out some rows, end training when the score on them no longer rises, and keep the best network;
        ``epochs`` is the most that there will be, and the learning rate falls as if all came.
    validation_fraction : share of the rows that is held out, of each class alike.
    n_iter_no_change, tol : end after more than so many epochs in which the score did not rise by ``tol``.
    class_weight : of the classifier: None, ``"balanced"`` (classes count the same, however many rows they have), or a
        dict of class to weight; for several labels that of 0 and 1 in each, or a list with one entry for each label.
    engine : ``"auto"``, ``"fused"`` or ``"module"``. Weights of rows or classes and several labels need modules.
    random_state : an int gives the same network every time, bit for bit.

    Attributes
    ----------
    model_ : the trained ``torch.nn.Module``; it takes standardised inputs.
    budget_, n_features_in_, n_iter_, n_steps_ : number of connections, inputs, epochs, steps.
    loss_curve_ : the mean loss of each epoch.
    scaler_ : of the inputs; None without ``standardize``.
    validation_scores_, best_validation_score_ : after each epoch, and of the network kept; None without
        ``early_stopping``. ``n_iter_`` counts all epochs then, ``n_steps_`` the steps of the network kept.
    classes_ : of the classifier: the labels, in the order of the columns of ``predict_proba``.
    """

    hidden_layer_sizes: int | tuple[int, ...] = (64,)
    _: KW_ONLY
    connectivity: float | None = None
    budget: int | None = None
    method: str = "deep-r"
    method_settings: Mapping[str, Any] | None = None
    epochs: int | None = None
    batch_size: int | None = None
    optimizer: str = "adam"
    learning_rate: float | None = None
    schedule: str = "cosine"
    final_lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    l1: float | str | None = None
    temperature: float | None = 0.0
    rewire_every: int = 1
    newborns: str = "share"
    scope: str = "layer"
    allocation: str = "equal"
    activation: str = "relu"
    bias: bool = True
    init: str = "sparse-fan-in"
    standardize: bool | None = None
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    tol: float = 1e-4
    engine: str = "auto"
    random_state: Any = None

    def _fit(self, examples: Examples, outputs: int, classes: np.ndarray | None = None) -> None:
        """Train a new network; ``classes``, where rows have one, are held out for validation in equal shares."""
        settings, held = self._read(examples, outputs), None  # what is wrong is said before rows are split
        if self.early_stopping:
            examples, held = held_out(examples, self.validation_fraction, classes, settings["seed"])
        self._start(settings, examples)
        self._learn(examples, settings["epochs"], False, held)

    def _fit_more(self, examples: Examples, outputs: int) -> None:
        if self.early_stopping:
            raise ValueError("partial_fit does not support early_stopping=True")
        if not self.__sklearn_is_fitted__():
            self._start(self._read(examples, outputs), examples)
        self._learn(examples, 1, True)

    def _read(self, examples: Examples, outputs: int) -> dict[str, Any]:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        nonzeros = int(examples.X.nnz) if issparse(examples.X) else None
        return {**read_parameters(self, self.n_features_in_, outputs, nonzeros), "seed": seed}

    def _start(self, settings: dict[str, Any], examples: Examples) -> None:
        """A new network and its method."""
        self.__dict__.pop("_network", None)  # a fit that is broken off leaves an estimator that is not fitted
        self.scaler_ = make_scaler(examples.X) if settings["standardize"] else None
        settings["batch_size"] = batch_size = settings["batch_size"] or 32
        steps = STEPS[issparse(examples.X)]
        epochs = min(max(round(steps / -(-len(examples) // batch_size)), EPOCHS[0]), EPOCHS[1])
        settings["epochs"] = settings["epochs"] or epochs
        method = METHODS[settings["method"]]
        model = perceptron(settings["sizes"], settings["activation"], settings["bias"], "meta")
        if method.plain:
            self.model_ = draw_weights(model, settings["seed"])
        else:
            names = ("connectivity", "budget", "scope", "allocation", "init", "seed")
            self.model_ = sparsify(model, **{name: settings[name] for name in names})
            if issparse(examples.X):
                start_where_inputs_are(first_layer(self.model_), SparseRows.of(examples.X))
        rates = (settings[name] for name in ("learning_rate", "momentum", "weight_decay"))
        optimizer = make_optimizer(settings["optimizer"], self.model_.parameters(), *rates)
        length = RunLength(-(-len(examples) // min(batch_size, len(examples))), settings["epochs"])
        self._method, self._settings = method.from_settings(self.model_, optimizer, settings, length), settings
        found = wirings(self.model_)
        self.budget_ = sum(w.budget for w in found) if found else sum(shape.possible for shape in self._method.shapes)
        self.n_iter_, self.loss_curve_ = 0, list[float]()
        self.validation_scores_: list[float] | None = None
        self.best_validation_score_: float | None = None

    def _learn(self, examples: Examples, epochs: int, constant: bool, held: Examples | None = None) -> None:
        if self.scaler_ is not None:  # the scaling is made of these rows and of those before
            fit_scaler(self.scaler_, examples.X, examples.sample_weight)
        x, weights = as_inputs(self._scaled(examples.X)), examples.loss_weights()
        loss, y = self._loss_and_targets(examples, new=self.n_iter_ == 0)
        parts = (loss, x, y, None if weights is None else as_tensor(weights))
        engine = choose_engine(self._settings["engine"], self.model_, self._method, *parts)
        stopping = None
        if held is not None:
            held_x = self._scaled(held.X)

            def score() -> float:
                return self._score_outputs(read_network(self.model_).forward(held_x, np.float64), held)

            stopping = EarlyStopping(self._method, score, self.n_iter_no_change, self.tol)
        for epoch_loss in epoch_losses(engine, self._settings, self._method.steps, len(x), epochs, constant):
            self.n_iter_ += 1
            self.loss_curve_.append(epoch_loss)
            if stopping is not None and stopping.after_epoch():
                break
        if stopping is not None:
            stopping.restore()
            self.validation_scores_, self.best_validation_score_ = stopping.scores, stopping.best
        self.model_.eval()
        self.n_steps_ = self._method.steps
        self._network = read_network(self.model_)

    @abstractmethod
    def _loss_and_targets(self, examples: Examples, *, new: bool) -> tuple[Loss, Tensor]:
        """What is minimised, and the targets as the network learns them; ``new`` says that they are the first."""

    @abstractmethod
    def _score_outputs(self, outputs: np.ndarray, examples: Examples) -> float:
        """What ``score`` would say if the network gave these outputs."""

    def _scaled(self, X: Any) -> Any:
        """Inputs as the network sees them, dense or sparse as they are."""
        return scaled(self.scaler_, X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_network")

    def _outputs(self, X: Any) -> np.ndarray:
        """What the last layer gives, in double precision."""
        check_is_fitted(self)
        return self._network.forward(self._scaled(validate(self, X, reset=False, **how_to_check(X))), np.float64)

    @property
    def feature_importances_(self) -> np.ndarray:
        """For each standardised input, the sum over its paths to outputs of the product of |weights|; they sum to 1."""
        check_is_fitted(self)
        strength = np.ones(self._network.sizes[-1])
        for layer in reversed(self._network.weighted):
            strength = abs(layer.matrix().astype(np.float64)).T @ strength
        return strength / (strength.sum() or 1.0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def to_network(self) -> Network:
        """The network with the scaling of inputs and targets folded into its weights, for ``wirebound.export``.

        It takes X as it is and gives what ``predict`` gives (regressor), or logits (classifier).
        """
        check_is_fitted(self)
        network, scaler = self._network, self.scaler_
        if scaler is None:
            return network
        first = network.weighted[0]
        weights, bias = first.weights / scaler.scale_[first.columns], first.bias
        if hasattr(scaler, "mean_"):  # of sparse rows nothing is taken off
            shift = np.bincount(first.rows, weights * scaler.mean_[first.columns], first.n_out)
            bias = np.asarray((0 if bias is None else bias) - shift, dtype=np.float32)
        return Network((replace(first, weights=weights.astype(np.float32), bias=bias), *network.layers[1:]))

