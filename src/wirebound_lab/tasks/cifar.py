"""CIFAR-10 with the convolutional network of the TensorFlow 1.3 tutorial (the paper's Figure 1B).

    wirebound train --task cifar --connectivity 0.05 --out runs/x

Claim: DEEP R reaches 84.1 % at 5 % connectivity, and at 20 % comes close to the dense network. The settings that are
given as defaults are the paper's and the tutorial's, except for the schedule: the paper trains for a million steps
(2,558 epochs), with η ten times smaller after each 350 epochs; ``--schedule paper --epochs 2558`` does that. A short run
follows half a cosine instead, because a tenth of η in a seventh of the run would end its learning before it has begun.
Connectivity is that of the second convolution and the two hidden layers: the first convolution and the output stay dense.
Evaluated are moving averages of the weights, as in the tutorial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.engine.modules import Batch, data_order
from wirebound.methods import METHODS, Setting
from wirebound.methods.average import WeightAverage
from wirebound_lab.data import Dataset, load, split_validation
from wirebound_lab.run.config import RunConfig
from wirebound_lab.run.models import build_method, build_optimizer
from wirebound_lab.tasks.cifar_model import DECAY, PLAIN, add_decay, gains, plain_model, shares_of, sparse_model
from wirebound_lab.tasks.task import SEED, Figures, Record, Task, evaluate, paper_rates

SIDE = 24
_FULL = 32
_CONTRAST = (0.2, 1.8)
_EPOCHS = 1 << 20  # more than any run has
_EVALUATION_BATCH = 500


class Cifar(Task):
    """Training and evaluation on CIFAR-10."""

    name = "cifar"
    title = "CIFAR-10 with the convolutional network of the TensorFlow 1.3 tutorial (figure 1B)"
    settings = (
        SEED,
        Setting("weight_decay", "float", DECAY, "ℓ2 penalty of the two hidden fully connected layers", least=0),
        Setting("init", "str", "tutorial", "first weights: the tutorial's, or so much stronger as they are fewer", ("tutorial", "scaled")),
        Setting("schedule", "str", "cosine", "how η falls: half a cosine, or ×0.1 after each 350 epochs", ("cosine", "paper")),
        Setting("l1", "float | None", None, "α of all three matrices instead of one for each", least=0),
        Setting("l1_conv2", "float", 1e-7, "α of the second convolution", least=0),
        Setting("l1_fc1", "float", 1e-6, "α of the first hidden layer", least=0),
        Setting("l1_fc2", "float", 1e-9, "α of the second hidden layer", least=0),
        Setting("noise", "float | None", None, "g of all three matrices instead of α/3, which is T = ηα²/18", least=0),
        Setting("average", "float", 0.9999, "decay of the moving average of the weights that is evaluated", least=0, below=1),
        Setting("evaluate_every", "int", 1, "epochs between evaluations; the last is always evaluated", least=1),
        Setting("images", "int | None", None, "train on so many images an epoch only, for trying out", least=1),
        Setting("test_images", "int | None", None, "evaluate on so many images only, for trying out", least=1),
    )
    defaults: ClassVar[Mapping[str, Any]] = {"batch_size": 128, "optimizer": "momentum", "momentum": 0.0, "lr": 0.1, "final_lr": 0.0}
    large_batches = True
    input_shape = (64, 5, 5)  # of the second convolution: channels, and places of its window

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        data = load("cifar10", path=config.data_path)
        if config.validation:
            data = split_validation(data, config.validation, seed=0)
        self.data = replace(data, test_x=data.test_x[: config.test_images], test_y=data.test_y[: config.test_images])
        self.images = min(len(data.train_y), config.images or len(data.train_y))
        self.per_epoch = -(-self.images // config.batch_size)
        scaled, sizes = config.init == "scaled", (config.connectivity, config.budget)
        self.model = plain_model(config.seed) if METHODS[config.method].plain else sparse_model(*sizes, config.seed, scaled)
        shares = shares_of(*sizes)
        l1 = [config.l1_conv2, config.l1_fc1, config.l1_fc2]
        if getattr(config, "l1", None) is not None:
            l1 = [config.l1] * 3
        noise = getattr(config, "noise", None)
        self.method = build_method(
            config, self.model, build_optimizer(config, self.model, weight_decay=0.0), self.per_epoch,
            **paper_rates(config, l1, [rate / 3 for rate in l1] if noise is None else [noise] * 3),
            allocation=shares, gain=gains(shares if scaled else None), init="dense-fan-in", exclude=PLAIN,
        )  # fmt: skip
        self.average = WeightAverage(self.method, config.average)

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        return training_batches(self.data, self.config.batch_size, self.config.seed, epoch, self.images, start)

    def loss(self, outputs: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(outputs, y, reduction=reduction)

    def after_backward(self) -> None:
        add_decay(self.model, self.config.weight_decay)

    def after_step(self) -> None:
        self.average.update()

    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        if epoch % self.config.evaluate_every and epoch < self.config.epochs:
            return {}
        with self.average.in_use():
            accuracy, loss = evaluate(self.model.eval(), evaluation_batches(self.data, _EVALUATION_BATCH), self.loss)
        found: dict[str, float | None] = {"test_accuracy": accuracy, "test_loss": loss}
        figures |= found
        return found

    def facts(self, connectivity: float) -> dict[str, Any]:
        part = "validation" if self.config.validation else "test"
        return {"data": "cifar10", "evaluated_on": part, "weights": "moving average"}


# Images as the tutorial feeds them: 24×24 pieces, distorted for training, each standardised


def training_batches(
    data: Dataset, size: int, seed: int, epoch: int, count: int | None = None, start: int = 0
) -> Iterator[Batch]:
    """The training images of an epoch (the first ``count`` of its order), each at a random place, side and contrast.

    The first batch is that of number ``start``. The tutorial also changes the brightness, which the standardisation
    undoes exactly; so it is omitted here.
    """
    generator = torch.Generator().manual_seed(seed * _EPOCHS + epoch)
    for number, chosen in enumerate(data_order(len(data.train_y), seed, epoch)[:count].split(size)):
        top, left = torch.randint(_FULL - SIDE + 1, (2, len(chosen)), generator=generator)
        flipped = torch.rand(len(chosen), generator=generator) < 0.5
        contrast = torch.empty(len(chosen), 1, 1, 1).uniform_(*_CONTRAST, generator=generator)
        if number < start:
            continue  # drawn all the same: the next batches have their numbers from the same generator
        x = _pieces(data.train_x, chosen, top, left, flipped)
        mean = x.mean((2, 3), keepdim=True)
        yield Batch((standardise((x - mean) * contrast + mean),), data.train_y[chosen])


def evaluation_batches(data: Dataset, size: int) -> Iterator[Batch]:
    """The middle of each test image."""
    for chosen in torch.arange(len(data.test_y)).split(size):
        middle = torch.full_like(chosen, (_FULL - SIDE) // 2)
        x = _pieces(data.test_x, chosen, middle, middle, torch.zeros_like(chosen, dtype=torch.bool))
        yield Batch((standardise(x),), data.test_y[chosen])


def standardise(x: Tensor) -> Tensor:
    """Each image with mean 0 and deviation 1; the deviation counts as 1/√n at least, for images of one colour."""
    flat = x.flatten(1)
    deviation = flat.std(1, correction=0).clamp_(min=flat.shape[1] ** -0.5)
    return ((flat - flat.mean(1, keepdim=True)) / deviation.unsqueeze(1)).view_as(x)


def _pieces(images: Tensor, chosen: Tensor, top: Tensor, left: Tensor, flipped: Tensor) -> Tensor:
    """24×24 pieces of the chosen images as float32 in [0, 1]."""
    steps = torch.arange(SIDE)
    rows = top[:, None] + steps
    columns = left[:, None] + torch.where(flipped[:, None], SIDE - 1 - steps, steps)
    channels = torch.arange(3)[None, :, None, None]
    taken = images[chosen[:, None, None, None], channels, rows[:, None, :, None], columns[:, None, None, :]]
    return taken.to(torch.float32).div_(255)
