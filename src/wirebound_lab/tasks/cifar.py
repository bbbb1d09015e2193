"""CIFAR-10 with the convolutional network of the TensorFlow 1.3 tutorial (the paper's Figure 1B).

    python -m wirebound_lab.tasks.cifar --method deep-r --connectivity 0.05 --epochs 10 --out runs/x

Claim: DEEP R reaches 84.1 % at 5 % connectivity, and at 20 % comes close to the dense network. The settings that are
given as defaults are the paper's and the tutorial's, except for the schedule: the paper trains for a million steps
(2,558 epochs), with η ten times smaller after each 350 epochs; ``--schedule paper --epochs 2558`` does that. A short run
follows half a cosine instead, because a tenth of η in a seventh of the run would end its learning before it has begun.
Connectivity is that of the second convolution and the two hidden layers: the first convolution and the output stay dense.
Evaluated are moving averages of the weights, as in the tutorial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, optim

from wirebound.methods.average import WeightAverage
from wirebound_lab.data import load, split_validation
from wirebound_lab.run.config import ConfigError
from wirebound_lab.tasks.cifar_input import Batch, evaluation_batches, training_batches
from wirebound_lab.tasks.cifar_model import (
    DECAY,
    PLAIN,
    add_decay,
    gains,
    plain_model,
    shares_of,
    sparse_model,
)
from wirebound_lab.tasks.task import Task
from wirebound_lab.tasks.task_config import TaskConfig, build_task_method, setting
from wirebound_lab.tasks.task_main import main_of

INITS = ("tutorial", "scaled")
SCHEDULES = ("cosine", "paper")
_PAPER_DECAY_EPOCHS = 350
_EVALUATION_BATCH = 500


@dataclass
class CifarConfig(TaskConfig):
    """One run on CIFAR-10."""

    epochs: int = setting(10, "passes over the training data")
    batch_size: int = setting(128, "images in a step")
    weight_decay: float = setting(DECAY, "ℓ2 penalty of the two hidden fully connected layers")
    momentum: float = setting(0.0, "momentum of SGD")
    init: str = setting("tutorial", "first weights: the tutorial's, or so much stronger as they are fewer", choices=INITS)
    schedule: str = setting("cosine", "how η falls: half a cosine, or ×0.1 after each 350 epochs", choices=SCHEDULES)
    l1: float | None = setting(None, "α of all three matrices instead of one for each")
    l1_conv2: float = setting(1e-7, "α of the second convolution")
    l1_fc1: float = setting(1e-6, "α of the first hidden layer")
    l1_fc2: float = setting(1e-9, "α of the second hidden layer")
    average: float = setting(0.9999, "decay of the moving average of the weights that is evaluated")
    validation: int = setting(0, "training images to hold out and report on instead of the test set")
    evaluate_every: int = setting(1, "epochs between evaluations; the last is always evaluated")
    images: int | None = setting(None, "train on so many images an epoch only, for trying out")
    test_images: int | None = setting(None, "evaluate on so many images only, for trying out")

    def check(self) -> CifarConfig:
        super().check()
        for name in ("l1", "l1_conv2", "l1_fc1", "l1_fc2", "validation"):
            self.at_least(name, 0)
        for name in ("images", "test_images", "evaluate_every"):
            self.at_least(name, 1)
        for name in ("average", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} (={getattr(self, name)}) must be in [0, 1)")
        return self

    @property
    def rates(self) -> list[float]:
        """α of the three matrices."""
        return [self.l1] * 3 if self.l1 is not None else [self.l1_conv2, self.l1_fc1, self.l1_fc2]


class CifarTask(Task):
    """Training and evaluation on CIFAR-10."""

    name = "cifar"
    input_shape = (64, 5, 5)  # of the second convolution: channels, and places of its window

    def __init__(self, config: CifarConfig) -> None:
        self.config: CifarConfig = config
        data = load("cifar10", path=config.data_path)
        if config.validation:
            data = split_validation(data, config.validation, seed=0)
        self.data = replace(data, test_x=data.test_x[: config.test_images], test_y=data.test_y[: config.test_images])
        self.images = min(len(data.train_y), config.images or len(data.train_y))
        self.per_epoch = math.ceil(self.images / config.batch_size)
        scaled = config.init == "scaled"
        if config.plain:
            model = plain_model(config.seed)
        else:
            model = sparse_model(config.connectivity, config.budget, config.seed, scaled)
        self.model = model
        optimizer = optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)
        shares = shares_of(config.connectivity, config.budget)
        self.method = build_task_method(
            config,
            model,
            optimizer,
            self.steps,
            l1=config.rates,
            noise=[rate / 3 for rate in config.rates],  # T = ηα²/18, which falls with η
            allocation=shares,
            gain=gains(shares if scaled else None),
            exclude=PLAIN,
        )
        self.average = WeightAverage(self.method, config.average)

    def batches(self, epoch: int) -> Iterator[Batch]:
        return training_batches(self.data, self.config.batch_size, self.config.seed, epoch, self.images)

    def loss(self, batch: Batch) -> Tensor:
        return F.cross_entropy(self.model(batch.x), batch.y)

    def after_backward(self) -> None:
        add_decay(self.model, self.config.weight_decay)

    def after_step(self) -> None:
        self.average.update()

    def lr_factor(self, progress: float) -> float:
        if self.config.schedule == "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        return 0.1 ** math.floor(progress * self.config.epochs / _PAPER_DECAY_EPOCHS)

    @torch.no_grad()
    def measure(self, epoch: int, figures: dict[str, float]) -> dict[str, float | None]:
        if epoch % self.config.evaluate_every and epoch < self.config.epochs:
            return {}
        right, loss = 0, 0.0
        with self.average.in_use():
            for batch in evaluation_batches(self.data, _EVALUATION_BATCH):
                logits = self.model(batch.x)
                right += int((logits.argmax(1) == batch.y).sum())
                loss += F.cross_entropy(logits, batch.y, reduction="sum").item()
        count = len(self.data.test_y)
        figures |= {"test_accuracy": right / count, "test_loss": loss / count}
        return {"test_accuracy": right / count, "test_loss": loss / count}

    def facts(self) -> dict[str, Any]:
        return {
            "data": "cifar10",
            "evaluated_on": "validation" if self.config.validation else "test",
            "weights": "moving average",
        }


main = partial(main_of, "cifar", __doc__ or "", CifarConfig, CifarTask, "accuracy {test_accuracy:.2%}")

if __name__ == "__main__":
    raise SystemExit(main())
