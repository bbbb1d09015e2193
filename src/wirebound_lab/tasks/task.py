"""What a task is: data, network, loss and measures. The loop (``wirebound_lab.run``) does the rest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.distributed import world_size
from wirebound.engine.modules import Batch, Engine, ModuleEngine
from wirebound.engine.window import StepWindow
from wirebound.methods import Method, Setting
from wirebound.methods.soft_rules import theta_min_from_l1
from wirebound_lab.run.config import ConfigError, RunConfig
from wirebound_lab.run.models import DistributedEngine

WINDOWS = 400  # points of the loss curve of a run
Figures = dict[str, Any]  # what has been measured up to now, by name: the summary will say it
Record = Callable[..., None]  # a line of metrics.jsonl: (kind, **values)
SEED = Setting("seed", "int", 0, "decides connections, weights, noise and the order of the data", least=0, below=2**32)


class Questions(NamedTuple):
    """Examples with a known answer, by which the circuit of a network can be found."""

    what: str  # one line for readers
    inputs: Tensor
    answers: Tensor  # of each example the number of the right choice
    scores: Callable[[Tensor], Tensor]  # from outputs of the network to [examples, choices]


class Task(ABC):
    """What one run trains, set up from its settings before the first step."""

    name: ClassVar[str]
    title: ClassVar[str]  # one line for the help
    headline: ClassVar[str] = ""  # how the summary is told beside the usual, in the form of ``str.format``
    settings: ClassVar[tuple[Setting, ...]] = ()  # its own, and those of a run or a method that it declares otherwise
    defaults: ClassVar[Mapping[str, Any]] = {}  # of settings that it does not declare, where others than usual
    large_batches: ClassVar[bool] = False  # makes and frees arrays of megabytes in every step

    config: RunConfig
    method: Method  # with model and optimiser
    per_epoch: int  # steps of an epoch
    lr_scale: float = 1.0  # of the learning rate that the settings name
    input_shape: tuple[int, ...]  # of what the first rewired matrix sees

    @abstractmethod
    def __init__(self, config: RunConfig) -> None: ...

    @classmethod
    def check(cls, config: RunConfig) -> None:
        """Raise ``ConfigError`` where settings do not fit together."""
        if not config.sized and (config.connectivity or config.budget):
            raise ConfigError(f"method (={config.method!r}) has no connectivity and no budget: omit them")

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.per_epoch * int(self.config.epochs)

    @property
    def window(self) -> int:
        """Steps between two records of the loss."""
        return max(1, self.steps // WINDOWS)

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch (the first is 1) from number ``start`` on, where no engine gathers them."""
        raise NotImplementedError

    def loss(self, outputs: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """The loss of a batch."""
        return F.cross_entropy(outputs, y, reduction=reduction)

    def count(self, y: Tensor) -> int:
        """Over how much of ``y`` the loss is the mean."""
        return len(y)

    def after_backward(self) -> None:  # noqa: B027 (most tasks do nothing there)
        """Between the gradient and the step."""

    def after_step(self) -> None:  # noqa: B027
        """After each step."""

    def engine(self, config: RunConfig) -> Engine:
        """What takes the steps."""
        if config.engine == "fused":
            raise ConfigError(f"engine (='fused') cannot run this: task (={self.name!r}) is trained by modules")
        engine = ModuleEngine(self.method.model, self.method, loss=self.loss)
        if world_size() > 1:
            engine = DistributedEngine(self.method.model, self.method, loss=self.loss, count=self.count)
        engine.after_backward, engine.after_step = self.after_backward, self.after_step
        return engine

    def take_steps(
        self, engine: Engine, epoch: int, lrs: Sequence[float], start: int, pause: Callable[[], bool]
    ) -> Iterator[StepWindow]:
        """The steps of an epoch, from number ``start`` on."""
        assert isinstance(engine, ModuleEngine)
        return engine.steps(self.batches(epoch, start), lrs, self.window, start, pause)

    def begin_epoch(self, epoch: int, engine: Engine) -> None:  # noqa: B027
        """Before the steps of an epoch, or of the rest of it, on every rank."""

    def look(self, epoch: int, taken: int, figures: Figures, record: Record) -> None:  # noqa: B027
        """At the beginning of an epoch (``taken`` 0) and after each window: what the task records besides."""

    @abstractmethod
    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        """After an epoch: note what the summary will say in ``figures``; returns what the epoch's record says."""

    @abstractmethod
    def facts(self, connectivity: float) -> dict[str, Any]:
        """What the summary says about the data."""

    def questions(self, part: str, count: int) -> Questions:
        """Questions of ``"train"`` or ``"held-out"`` examples, where the task has such."""
        raise ConfigError(f"task (={self.name!r}) has no questions with a known answer: use task quotes")

    def conclude(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """What else the summary says that follows from what it says."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the task itself."""
        return {}

    def load_state(self, stored: dict[str, Any]) -> None:  # noqa: B027
        """Take over what a checkpoint holds."""


def paper_rates(config: RunConfig, l1: list[float] | str, noise: list[float]) -> dict[str, Any]:
    """α and g of each matrix for ``build_method``; for soft-DEEP R by the paper's simple rule, α = 3 √(2T/η) = −θ_min/3."""
    if config.method != "soft-deep-r" or isinstance(l1, str):  # the method says whether it knows such a word
        return {"l1": l1, "noise": noise}
    floors = [theta_min_from_l1(rate) for rate in l1] if config.theta_min is None else config.theta_min
    return {"l1": l1, "noise": [rate / 3 for rate in l1], "theta_min": floors}


@torch.no_grad()
def evaluate(outputs: Callable[..., Tensor], batches: Iterator[Batch], loss: Callable[..., Tensor]) -> tuple[float, float]:
    """(accuracy, mean loss) on these examples."""
    right, total, count = 0, 0.0, 0
    for batch in batches:
        logits = outputs(*batch.inputs)
        right += int((logits.argmax(1) == batch.y).sum())
        total += loss(logits, batch.y, reduction="sum").item()
        count += len(batch.y)
    return right / count, total / count
