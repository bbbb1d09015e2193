"""A perceptron on images as vectors: the paper's MNIST experiments, and whatever data sets there are."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from torch import Tensor

from wirebound.engine.modules import Batch, Engine, data_order
from wirebound.engine.window import StepWindow
from wirebound.methods import METHODS, Setting
from wirebound.methods.average import WeightAverage
from wirebound.nn.centring import centre_gradients_
from wirebound.nn.correlated import wire_by_correlation_
from wirebound.nn.learning_rate import lr_factor
from wirebound.nn.perceptron import ACTIVATIONS
from wirebound.nn.sparse_layer import set_rates, sparse_layers, wirings
from wirebound.nn.sparsify import SCOPES
from wirebound.wiring.budget import RULES, read_allocation
from wirebound.wiring.draw import INITS
from wirebound_lab import data as datasets
from wirebound_lab.run.config import ConfigError, RunConfig, as_config_error
from wirebound_lab.run.models import build_method, build_model, build_optimizer, choose_engine
from wirebound_lab.tasks.mixing import MIXUP, mixed
from wirebound_lab.tasks.pieces import AUGMENTATIONS, BORDER, Pieces
from wirebound_lab.tasks.soft_targets import SOFT_TARGETS, with_soft_targets
from wirebound_lab.tasks.task import Figures, Record, Task, evaluate

_EVALUATION_BATCH = 1000
_EXAMPLES = 4000  # by which the first wiring is drawn
# What the paper reports for runs like ours, to be printed beside our figures.
_SOURCE = "Bellec, Kappel, Maass, Legenstein: Deep Rewiring, ICLR 2018"
CLAIMS: tuple[dict[str, Any], ...] = tuple(
    {
        "claim": f"DEEP R reaches {100 * accuracy:.1f} % on MNIST at {100 * connectivity:.1f} % connectivity in {epochs} epochs",
        "data": "mnist", "method": "deep-r", "connectivity": connectivity, "epochs": epochs, "accuracy": accuracy,
        "source": _SOURCE,
    }
    for connectivity, epochs, accuracy in ((0.013, 10, 0.962), (0.010, 20, 0.963))
)
LAYERS = 3  # of the network whose learning rate ``dense_lr`` means


class Perceptron(Task):
    """Linear layers with activations between them."""

    name = "perceptron"
    title = "linear layers on images as vectors (the paper's MNIST networks)"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting("data", "str", "mnist", "data set: mnist, digits, or cifar10 (flattened)"),
        Setting("scope", "str", "global", "one budget for the network, or one for each layer", choices=SCOPES),
        Setting(
            "allocation", "str", "paper",
            f"how the budget is shared out at the start: {', '.join(RULES)}; or the count (or connectivity) of each layer "
            "with commas between them",
        ),
        Setting("hidden", "list[int]", [300, 100], "sizes of the hidden layers", least=1),
        Setting("activation", "str", "relu", "activation of the hidden layers", choices=tuple(ACTIVATIONS)),
        Setting("bias", "bool", False, "give layers biases (not counted in the budget)"),
        Setting("init", "str", "dense-fan-in", "scale of the first weights", choices=INITS),
        Setting("gain", "float", 1.0, "factor on the scale of the first weights", above=0),
        Setting("dense_output", "bool", False, "the last layer is dense, and not counted in the budget (sparse methods)"),
        Setting("augment", "str", "none", "crop: images moved by up to 'shift' pixels and standardised; crop-flip: mirrored too", AUGMENTATIONS),
        Setting("shift", "int", BORDER, "pixels by which augment moves an image at most, up, down, left and right", least=0),
        Setting(
            "correlated", "list[float]", [],
            "power of the correlation by which the inputs of the first layers are drawn at the start, one for each of them", least=0,
        ),
        Setting("input_dropout", "float", 0.0, "share of the inputs that is left out in training", least=0, below=1),
        Setting("dropout", "float", 0.0, "share of the hidden units that is left out in training", least=0, below=1),
        MIXUP,
        Setting("average", "float", 0.0, "decay of a moving average of the weights that is evaluated; 0: none", least=0, below=1),
        *SOFT_TARGETS,
        Setting("dense_lr", "bool", False, "lr suits a dense network of three layers: by fan-in and depth for others"),
        Setting("sparse_lr", "float", 1.0, "factor on the lr of connections, beside biases and a dense output", above=0),
        Setting(
            "mean_gradient", "float", 1.0, "share that is left of what the gradients of a unit's connections have in common", least=0, most=1
        ),
        Setting("max_fan_in", "int | None", None, "most connections of an output neuron (sparse methods)", least=1),
        Setting("max_fan_out", "int | None", None, "most connections of an input neuron (sparse methods)", least=1),
        Setting("dale", "float | None", None, "share of the input neurons that are excitatory, not inhibiting", least=0, most=1),
    )  # fmt: skip

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        data = datasets.load(config.data, path=config.data_path)
        if config.validation:
            data = datasets.split_validation(data, config.validation, seed=0)
        self.data, self.input_shape = data, data.shape
        self.pieces = None if config.augment == "none" else Pieces(data, config.seed, config.shift, config.augment == "crop-flip")
        self.data = with_soft_targets(data, config, self.seen)
        if self.pieces is not None:
            self.pieces.y = self.data.train_y
        self.per_epoch = -(-len(data.train_y) // config.batch_size)
        self.test_x = self.seen(data.test_x)
        model = build_model(config, self.test_x.shape[1], data.classes)
        if config.correlated:
            with as_config_error():
                wire_by_correlation_(model, self.seen(data.train_x[:_EXAMPLES]), power=config.correlated)
        if config.sparse_lr != 1.0:
            for _, layer in sparse_layers(model):
                set_rates(layer, lr=config.sparse_lr)
        if config.dense_lr and not METHODS[config.method].plain:
            # What one layer changes, all after it change too: deep and very sparse networks die at the rate of shallow ones.
            shallow = min(1.0, LAYERS / (len(config.hidden) + 1))
            self.lr_scale = shallow * max(lr_factor(wiring) for wiring in wirings(model))
        self.method = build_method(config, model, build_optimizer(config, model), self.per_epoch)
        self.average = WeightAverage(self.method, config.average) if config.average else None

    @classmethod
    def check(cls, config: RunConfig) -> None:
        with as_config_error():
            read_allocation(config.allocation)
        for name in ("max_fan_in", "max_fan_out", "dale"):
            if getattr(config, name) is not None and METHODS[config.method].plain:
                raise ConfigError(f"{name} (={getattr(config, name)}) must not be given for {config.method}, which has no wiring")
        if config.mean_gradient < 1 and METHODS[config.method].plain:
            raise ConfigError(f"mean_gradient (={config.mean_gradient:g}) must be 1 for {config.method}, which has no wiring")

    def seen(self, images: Tensor) -> Tensor:
        """Images as the network sees them, not moved."""
        return self.data.to_inputs(images, flatten=True) if self.pieces is None else self.pieces.middle(images)

    @property
    def only_modules(self) -> str:
        """The settings that fused steps do not know, in words; empty: they know all."""
        named = {name: getattr(self.config, name) for name in ("augment", "mixup", "average", "mean_gradient")}
        plain = {"augment": "none", "mixup": 0, "average": 0, "mean_gradient": 1}
        return ", ".join(f"{name} (={value!r})" for name, value in named.items() if value != plain[name])

    def engine(self, config: RunConfig) -> Engine:
        if not self.only_modules:
            return choose_engine(config, self.method.model, self.method, self.data)
        if config.engine == "fused":
            raise ConfigError(f"engine (='fused') cannot run this: {self.only_modules} is for modules")
        return super().engine(config)

    def after_backward(self) -> None:
        if self.config.mean_gradient < 1:
            centre_gradients_(self.method.model, self.config.mean_gradient)

    def after_step(self) -> None:
        if self.average is not None:
            self.average.update()

    def take_steps(
        self, engine: Engine, epoch: int, lrs: Sequence[float], start: int, pause: Callable[[], bool]
    ) -> Iterator[StepWindow]:
        if self.only_modules:
            return super().take_steps(engine, epoch, lrs, start, pause)
        return engine.epoch(self._order(epoch), lrs, self.config.batch_size, self.window, start, pause)

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        config = self.config
        plain = self._rows(epoch, start) if self.pieces is None else self.pieces.batches(config.batch_size, epoch, start)
        found = (Batch(batch.inputs, self.labels(batch.y, epoch)) for batch in plain)
        return mixed(found, config.mixup, self.data.classes, config.seed, epoch, start) if config.mixup else found

    def labels(self, y: Tensor, epoch: int) -> Tensor:
        """What the labels ``y`` of the data are in an epoch."""
        return y

    def _order(self, epoch: int) -> Tensor:
        return data_order(len(self.data.train_y), self.config.seed, epoch)

    def _rows(self, epoch: int, start: int) -> Iterator[Batch]:
        """The examples as they are, from batch number ``start`` on."""
        size = self.config.batch_size
        for chosen in self._order(epoch)[start * size :].split(size):
            yield Batch((self.data.to_inputs(self.data.train_x[chosen], flatten=True),), self.data.train_y[chosen])

    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        self.evaluate(self.data.test_y, figures)
        return {name: figures[name] for name in ("test_loss", "test_accuracy")}

    def evaluate(self, labels: Tensor, figures: Figures) -> None:
        model = self.method.model.eval()
        parts = zip(self.test_x.split(_EVALUATION_BATCH), labels.split(_EVALUATION_BATCH), strict=True)
        with contextlib.nullcontext() if self.average is None else self.average.in_use():
            figures["test_accuracy"], figures["test_loss"] = evaluate(model, (Batch((x,), y) for x, y in parts), self.loss)

    def facts(self, connectivity: float) -> dict[str, Any]:
        config = self.config
        found = {"data": config.data, "evaluated_on": "validation" if config.validation else "test"}
        for claim in CLAIMS:
            same = (claim["data"], claim["method"], [300, 100]) == (config.data, config.method, config.hidden)
            if same and abs(claim["connectivity"] - connectivity) < 5e-4:
                return {**found, "paper": dict(claim)}
        return found
