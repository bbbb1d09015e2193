"""CIFAR-10 with the convolutional network of the TensorFlow 1.3 tutorial (the paper's Figure 1B).

Claim: DEEP R reaches 84.1 % at 5 % connectivity, and at 20 % comes close to the dense network. Defaults are the paper's
and the tutorial's, but for the schedule: the paper's (``--schedule paper --epochs 2558``) is for a million steps. The first
convolution and the output stay dense; moving averages of the weights are evaluated.

    conv 5×5×3×64 → ReLU → max-pool 3×3/2 → LRN → conv 5×5×64×64 → ReLU → LRN → max-pool 3×3/2
    → 2304→384 → ReLU → 384→192 → ReLU → 192→10

Differs from the tutorial in that first weights are normal instead of truncated normal, with the same deviation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.engine.modules import Batch, data_order
from wirebound.methods import METHODS, Setting
from wirebound.methods.average import WeightAverage
from wirebound.methods.declaration import AUTO
from wirebound.nn.image_blocks import NormPool, Stem
from wirebound.nn.nonzero import FastConv2d, NonzeroConv2d, NonzeroLinear
from wirebound.nn.sparse_layer import sparse_layers
from wirebound.nn.sparsify import sparsify
from wirebound.ops import backend_on
from wirebound.ops.image_shapes import PoolNorm
from wirebound.wiring.budget import RULES, Allocation, allocate, read_allocation
from wirebound_lab.data import Dataset, load, split_validation
from wirebound_lab.run.config import RunConfig, as_config_error
from wirebound_lab.run.models import build_method, build_optimizer
from wirebound_lab.tasks.task import SEED, Figures, Record, Task, evaluate, paper_rates

SIDE = 24
_FULL = 32
_CONTRAST = (0.2, 1.8)
_EPOCHS = 1 << 20  # more than any run has
_EVALUATION_BATCH = 500
REWIRED = ("conv2", "fc1", "fc2")
PLAIN = ("conv1.*", "out.*")  # parameters that no method thins out
_SIZES = {"conv2": (64, 1600), "fc1": (384, 2304), "fc2": (192, 384)}  # outputs, inputs
_CUT = 0.8796256610342398  # deviation of a unit normal cut off at 2
DEVIATIONS = {"conv1": 0.05 * _CUT, "conv2": 0.05 * _CUT, "fc1": 0.04 * _CUT, "fc2": 0.04 * _CUT, "out": _CUT / 192}
BIASES = {"conv1": 0.0, "conv2": 0.1, "fc1": 0.1, "fc2": 0.1, "out": 0.0}
DECAY = 0.004  # ℓ2 of the two hidden fully connected layers
DECAYED = ("fc1", "fc2")
# Pooling 3×3/2 with the borders of TensorFlow's "same", and the tutorial's local response normalisation.
AFTER = PoolNorm(window=3, step=2, radius=4, alpha=0.001 / 9, beta=0.75, bias=1.0)


class CifarNet(nn.Module):
    """Logits [B, 10] from images [B, 3, 24, 24]. Dense and within ``ops.use("reference")`` it is plain torch.
    The classes of its plain layers may be those of ``nn/nonzero.py``."""

    def __init__(self, conv: type[nn.Conv2d] = nn.Conv2d, linear: type[nn.Linear] = nn.Linear) -> None:
        super().__init__()
        self.conv1 = Stem(3, 64, 5, 2, AFTER)  # with pooling and norm
        self.conv2 = conv(64, 64, 5, padding=2)
        self.norm2 = NormPool(AFTER)
        self.fc1 = linear(2304, 384)
        self.fc2 = linear(384, 192)
        self.out = nn.Linear(192, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm2(self.conv2(self.conv1(x))).flatten(1)
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        logits: Tensor = self.out(x)
        return logits


def plain_model(seed: int, by_nonzero: bool = False) -> CifarNet:
    """All connections, with the tutorial's first weights. ``by_nonzero``: for methods that keep weights at 0."""
    with torch.device("meta"):
        model = CifarNet(NonzeroConv2d, NonzeroLinear) if by_nonzero else CifarNet(FastConv2d)
    return _start(model, seed)


def sparse_model(
    connectivity: float | None, budget: int | None, seed: int, scaled: bool = False, allocation: Allocation = "paper"
) -> CifarNet:
    """One budget for three matrices, shared out at the start by ``allocation``; their dense weights never exist.

    ``scaled``: weights are stronger by 1/√connectivity of their matrix, so that activities start as in the dense network.
    """
    with torch.device("meta"):
        model = CifarNet()
    sparsify(model, connectivity, budget, include=REWIRED, allocation=allocation, seed=seed, device="cpu")
    return _start(model, seed, scaled)


def shares_of(connectivity: float | None, budget: int | None, allocation: Allocation = "paper") -> list[float]:
    """Connectivity of the three matrices at the start; 1 for methods that are told none."""
    if connectivity is None and budget is None:
        return [1.0] * len(REWIRED)
    counts = allocate(REWIRED, list(_SIZES.values()), allocation, connectivity, budget)
    return [count / (n_out * n_in) for count, (n_out, n_in) in zip(counts, _SIZES.values(), strict=True)]


def gains(shares: Sequence[float] | None = None) -> list[float]:
    """What makes the tutorial's deviations of N(0, 1)/√n_in, for the three matrices; ``shares``: scaled for these."""
    strengths = dict.fromkeys(REWIRED, 1.0) if shares is None else dict(zip(REWIRED, (s**-0.5 for s in shares), strict=True))
    return [float(strength * DEVIATIONS[name] * _SIZES[name][1] ** 0.5) for name, strength in strengths.items()]


@torch.no_grad()
def _start(model: CifarNet, seed: int, scaled: bool = False) -> CifarNet:
    generator = torch.Generator().manual_seed(seed)
    sparse = dict(sparse_layers(model))
    for name, deviation in DEVIATIONS.items():
        if name in sparse:
            layer = sparse[name]
            first, last = layer.wiring.bounds[layer.layer_id : layer.layer_id + 2]
            n_out, n_in = _SIZES[name]
            strength = (n_out * n_in / (last - first)) ** 0.5 if scaled else 1.0
            layer.wiring.theta[first:last] *= strength * deviation * n_in**0.5
        else:
            module = model.get_submodule(name)
            if any(parameter.is_meta for parameter in module.parameters()):
                module.to_empty(device="cpu")
            module.get_parameter("weight").normal_(0.0, deviation, generator=generator)
        model.get_submodule(name).get_parameter("bias").fill_(BIASES[name])
    return model


@torch.no_grad()
def add_decay(model: CifarNet, decay: float = DECAY) -> None:
    """The gradient of the ℓ2 penalty of the hidden fully connected layers, added to theirs."""
    sparse = dict(sparse_layers(model))
    for name in DECAYED:
        if name in sparse:
            layer = sparse[name]
            weight, part = layer.wiring.theta, slice(*layer.wiring.bounds[layer.layer_id : layer.layer_id + 2])
        else:
            weight, part = model.get_submodule(name).get_parameter("weight"), slice(None)
        assert weight.grad is not None
        weight.grad[part].add_(weight[part], alpha=decay)


class Cifar(Task):
    """Training and evaluation on CIFAR-10."""

    name = "cifar"
    title = "CIFAR-10 with the convolutional network of the TensorFlow 1.3 tutorial (figure 1B)"
    settings = (
        SEED,
        Setting("weight_decay", "float", DECAY, "ℓ2 penalty of the two hidden fully connected layers", least=0),
        Setting(
            "allocation", "str", "paper",
            f"how the budget is shared out at the start: {', '.join(RULES)}; or the count (or connectivity) of each matrix "
            "with commas between them",
        ),
        Setting("init", "str", "tutorial", "first weights: the tutorial's, or so much stronger as they are fewer", ("tutorial", "scaled")),
        Setting("schedule", "str", "cosine", "how η falls: half a cosine, or ×0.1 after each 350 epochs", ("cosine", "paper")),
        Setting("l1", "float | None", None, "α of all three matrices instead of one for each", least=0, words=(AUTO,)),
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
        with as_config_error():
            allocation = read_allocation(config.allocation)
            shares = shares_of(*sizes, allocation)
        kind = METHODS[config.method]
        by_nonzero = not kind.zeros_learn
        start = (*sizes, config.seed, scaled, allocation)
        self.model = plain_model(config.seed, by_nonzero) if kind.plain else sparse_model(*start)
        one, noise = getattr(config, "l1", None), getattr(config, "noise", None)
        each = [config.l1_conv2, config.l1_fc1, config.l1_fc2]
        l1 = each if one is None else one if one == AUTO else [one] * 3
        self.method = build_method(
            config, self.model, build_optimizer(config, self.model, weight_decay=0.0), self.per_epoch,
            **paper_rates(config, l1, [rate / 3 for rate in each] if noise is None else [noise] * 3),
            allocation=shares, gain=gains(shares if scaled else None), init="dense-fan-in", exclude=PLAIN,
        )  # fmt: skip
        self.average = WeightAverage(self.method, config.average)

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        return training_batches(self.data, self.config.batch_size, self.config.seed, epoch, self.images, start)

    def after_backward(self) -> None:
        add_decay(self.model, self.config.weight_decay)

    def after_step(self) -> None:
        self.average.update()

    def measure(self, epoch: int, figures: Figures, record: Record) -> dict[str, float | None]:
        if epoch % self.config.evaluate_every and epoch < self.config.epochs:
            return {}
        with self.average.in_use():
            accuracy, loss = evaluate(self.model.eval(), evaluation_batches(self.data, _EVALUATION_BATCH), self.loss)
        figures |= {"test_accuracy": accuracy, "test_loss": loss}
        return {"test_accuracy": accuracy, "test_loss": loss}

    def facts(self, connectivity: float) -> dict[str, Any]:
        part = "validation" if self.config.validation else "test"
        return {"data": "cifar10", "evaluated_on": part, "weights": "moving average"}


# Images as the tutorial feeds them: 24×24 pieces, distorted for training, each standardised


def training_batches(
    data: Dataset, size: int, seed: int, epoch: int, count: int | None = None, start: int = 0
) -> Iterator[Batch]:
    """The training images of an epoch (the first ``count`` of its order), each at a random place, side and contrast, from
    batch number ``start`` on. The tutorial also changes the brightness, which the standardisation undoes exactly."""
    generator = torch.Generator().manual_seed(seed * _EPOCHS + epoch)
    for number, chosen in enumerate(data_order(len(data.train_y), seed, epoch)[:count].split(size)):
        top, left = torch.randint(_FULL - SIDE + 1, (2, len(chosen)), generator=generator)
        flipped = torch.rand(len(chosen), generator=generator) < 0.5
        contrast = torch.empty(len(chosen)).uniform_(*_CONTRAST, generator=generator)
        if number < start:
            continue  # drawn all the same: the next batches have their numbers from the same generator
        x = _pieces(data.train_x, chosen, top, left, flipped, contrast)
        yield Batch((x,), data.train_y[chosen])


def evaluation_batches(data: Dataset, size: int) -> Iterator[Batch]:
    """The middle of each test image."""
    for chosen in torch.arange(len(data.test_y)).split(size):
        middle = torch.full_like(chosen, (_FULL - SIDE) // 2)
        x = _pieces(data.test_x, chosen, middle, middle, torch.zeros_like(chosen, dtype=torch.bool), None)
        yield Batch((x,), data.test_y[chosen])


def _pieces(
    images: Tensor, chosen: Tensor, top: Tensor, left: Tensor, flipped: Tensor, contrast: Tensor | None
) -> Tensor:
    return backend_on(images.device).cut_pieces(images, chosen, top, left, flipped, contrast, SIDE)
