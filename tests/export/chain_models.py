"""Models that are chains but no plain stacks: user classes, batch norm, other activations, convolutions, pooling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb


class TwoLayers(nn.Module):
    """As people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(20, 40), nn.Linear(40, 5)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class LogSoftmax(TwoLayers):
    """As the examples of torch have it."""

    def forward(self, x):
        return F.log_softmax(super().forward(x), dim=1)


class Functional(nn.Module):
    """Functions and methods where others have modules."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(36, 30), nn.Linear(30, 12), nn.Linear(12, 12), nn.Linear(12, 4)

    def forward(self, x):
        x = x.view(x.size(0), -1)
        x = F.gelu(self.a(x))
        x = F.dropout(x, 0.5, self.training)
        x = F.leaky_relu(self.b(x), 0.2).contiguous()
        return torch.sigmoid(self.d(self.c(x).tanh()))


class Convolutions(nn.Module):
    """A small LeNet with nested modules."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.second = nn.Conv2d(6, 8, 3, stride=2, bias=False)
        self.head = nn.Linear(8 * 2 * 2, 5)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = F.max_pool2d(self.features(x), 2)
        x = F.relu(self.second(x), inplace=True)
        x = torch.flatten(x, 1)
        return self.head(self.drop(x))


class Examples(nn.Module):
    """Further habits: a list of layers, batch norm around functions, the mean of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(2, 5, 3, bias=False), nn.Conv2d(5, 6, 3, 2)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(5), nn.BatchNorm2d(6)])
        self.head = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, 3))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.relu(norm(layer(x)))
        return self.head(x.mean((2, 3)))


def _reshaped() -> nn.Module:
    class Reshaped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 3, 2), nn.Linear(3 * 4 * 3, 4)

        def forward(self, x):
            x = F.relu(self.conv(x.view(-1, 2, 5, 4)))
            return self.head(x.reshape(x.shape[0], -1))

    return Reshaped()


CHAINS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "two-layers": (TwoLayers, (20,)),
    "functional": (Functional, (36,)),
    "softmax": (lambda: nn.Sequential(nn.Linear(20, 9), nn.ReLU(), nn.Linear(9, 5), nn.Softmax(1)), (20,)),
    "log-softmax": (LogSoftmax, (20,)),
    "one-linear": (lambda: nn.Linear(6, 4), (6,)),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.Linear(9, 8), nn.ReLU()), nn.Linear(8, 3)), (9,)),
    "norm-behind": (
        lambda: nn.Sequential(nn.Linear(12, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)), (12,),
    ),
    "norm-before": (
        lambda: nn.Sequential(
            nn.BatchNorm1d(12), nn.Linear(12, 16), nn.Tanh(), nn.BatchNorm1d(16, affine=False), nn.Linear(16, 4, bias=False)
        ),
        (12,),
    ),
    "norm-alone": (lambda: nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.ReLU()), (12,)),
    "gelu": (lambda: nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 8), nn.GELU("tanh")), (12,)),
    "others": (
        lambda: nn.Sequential(nn.Linear(12, 16), nn.SiLU(), nn.Linear(16, 9), nn.ReLU6(), nn.Linear(9, 9), nn.ELU(0.7)), (12,),
    ),
    "lenet": (Convolutions, (1, 10, 10)),
    "conv-settings": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=2), nn.ReLU(),
            nn.Conv2d(6, 4, 2, padding="same", bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 7 * 5, 3),
        ),
        (4, 7, 8),
    ),
    "groups": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), nn.ReLU(), nn.Conv2d(6, 4, (2, 3), padding="same"),
            nn.ReLU(), nn.Flatten(1, 3), nn.Linear(4 * 3 * 3, 3),
        ),
        (4, 7, 8),
    ),
    "norm-and-padding": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(),
            nn.BatchNorm2d(3), nn.Conv2d(3, 3, 2), nn.ReLU(), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 9, 4),
        ),
        (2, 6, 6),
    ),
    "means": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AvgPool2d(3, 2, 1), nn.Conv2d(4, 3, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2),
        ),
        (2, 9, 7),
    ),
    "pools": (
        lambda: nn.Sequential(
            nn.MaxPool2d((2, 3), stride=1, padding=1, dilation=1), nn.Conv2d(2, 4, 2), nn.AvgPool2d(2, 1, 1, count_include_pad=False),
            nn.Tanh(), nn.MaxPool2d(2, 2, 1, dilation=2), nn.Flatten(), nn.Linear(4 * 5 * 4, 2),
        ),
        (2, 8, 7),
    ),
    "conv1d": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 8, 5, stride=2, padding=2), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(8, 4, 3, dilation=2),
            nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(4 * 2, 3),
        ),
        (3, 32),
    ),
    "nir-conv1d": (
        lambda: nn.Sequential(nn.Conv1d(3, 8, 5, stride=2, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8, 3)), (3, 16),
    ),
    "ends-with-conv": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1)), (2, 5, 6)),
    "examples": (Examples, (2, 8, 9)),
    "reshaped": (_reshaped, (40,)),
}  # fmt: skip
SPATIAL = tuple(name for name, (_, shape) in CHAINS.items() if len(shape) > 1)
NIR_CHAINS = ("two-layers", "norm-behind", "norm-alone", "groups", "norm-and-padding", "means", "ends-with-conv", "nir-conv1d")


def chain_model(name: str, *, sparse: bool = True) -> nn.Module:
    """The model, sparse, with biases and running statistics that are not those of the start; in training mode."""
    torch.manual_seed(4)
    model = CHAINS[name][0]()
    if sparse:
        model = wb.sparsify(model, connectivity=0.5, seed=2)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.3, 2)
            if module.affine:
                nn.init.normal_(module.weight)
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("bias"):
            nn.init.normal_(parameter)
    return model.train()


def chain_inputs(name: str, count: int = 5) -> np.ndarray:
    return torch.randn(count, *CHAINS[name][1], generator=torch.Generator().manual_seed(3)).numpy()


def chain_outputs(model: nn.Module, x: np.ndarray) -> np.ndarray:
    """What torch gives in eval mode; the model's own modes are left alone."""
    modes = {module: module.training for module in model.modules()}
    with torch.no_grad():
        y = model.eval()(torch.from_numpy(x)).numpy()
    for module, mode in modes.items():
        module.training = mode
    return y
