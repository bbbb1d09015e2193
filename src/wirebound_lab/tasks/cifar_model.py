"""The network of the TensorFlow 1.3 tutorial for CIFAR-10, plain or with three sparse matrices.

    conv 5×5×3×64 → ReLU → max-pool 3×3/2 → LRN → conv 5×5×64×64 → ReLU → LRN → max-pool 3×3/2
    → 2304→384 → ReLU → 384→192 → ReLU → 192→10

The first convolution and the last layer stay dense, as in the paper. Differs from the tutorial in that first weights
are normal instead of truncated normal, with the deviation that the truncated ones have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn.sparse_layer import sparse_layers
from wirebound.nn.sparsify import sparsify

REWIRED = ("conv2", "fc1", "fc2")
PLAIN = ("conv1.*", "out.*")  # parameters that no method thins out
MULTIPLIERS = {"conv2": 4.0, "fc1": 0.4, "fc2": 4.0}  # initial connectivity in units of the global one
_SIZES = {"conv2": (64, 1600), "fc1": (384, 2304), "fc2": (192, 384)}  # outputs, inputs
_CUT = 0.8796256610342398  # deviation of a unit normal cut off at 2
DEVIATIONS = {"conv1": 0.05 * _CUT, "conv2": 0.05 * _CUT, "fc1": 0.04 * _CUT, "fc2": 0.04 * _CUT, "out": _CUT / 192}
BIASES = {"conv1": 0.0, "conv2": 0.1, "fc1": 0.1, "fc2": 0.1, "out": 0.0}
DECAY = 0.004  # ℓ2 of the two hidden fully connected layers
DECAYED = ("fc1", "fc2")


class _LocalResponse(torch.autograd.Function):
    """x · d^−β with d = 1 + α Σ x² over neighbouring channels; x [N, channels], the sum as a product with a band."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, band: Tensor, alpha: float) -> Tensor:
        d = (x * x).mm(band).mul_(alpha).add_(1)
        root = d.rsqrt()
        scale = root * root.sqrt()  # d^−3/4
        ctx.save_for_backward(x, band, d, scale)
        ctx.alpha = alpha
        return x * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, band, d, scale = ctx.saved_tensors
        (grad,) = grads
        own = grad * scale
        shared = (own * x).div_(d).mm(band)
        return own.addcmul_(x, shared, value=-2 * 0.75 * ctx.alpha), None, None


class LocalResponse(nn.Module):
    """Local response normalisation over channels (radius 4, bias 1, α 0.001/9, β 0.75) of x [B, channels, H, W].

    torch's own is a three-dimensional pooling and takes several times as long on a CPU.
    """

    band: Tensor

    def __init__(self, channels: int, radius: int = 4, alpha: float = 0.001 / 9) -> None:
        super().__init__()
        steps = torch.arange(channels, device="cpu")  # also in a model that is made on meta
        self.alpha = alpha
        self.register_buffer("band", ((steps[:, None] - steps).abs() <= radius).float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        last = x.permute(0, 2, 3, 1)
        flat = last.reshape(-1, x.shape[1])
        result: Tensor = _LocalResponse.apply(flat, self.band, self.alpha)
        return result.view(last.shape).permute(0, 3, 1, 2)


class CifarNet(nn.Module):
    """Logits [B, 10] from images [B, 3, 24, 24]."""

    def __init__(self) -> None:
        super().__init__()
        # A matrix over patches: three channels are too few for torch's convolution to be quick.
        self.conv1 = nn.Linear(75, 64)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        self.fc1 = nn.Linear(2304, 384)
        self.fc2 = nn.Linear(384, 192)
        self.out = nn.Linear(192, 10)
        self.norm1, self.norm2 = LocalResponse(64), LocalResponse(64)

    def forward(self, x: Tensor) -> Tensor:
        patches = F.pad(x, (2, 2, 2, 2)).unfold(2, 5, 1).unfold(3, 5, 1)
        x = self.conv1(patches.permute(0, 2, 3, 1, 4, 5).reshape(*x.shape[:1], *x.shape[2:], 75)).permute(0, 3, 1, 2)
        # The largest of the positive parts is the positive part of the largest, on a quarter of the numbers.
        x = self.norm1(F.relu(_halve(x)))
        x = self.norm2(F.relu(self.conv2(x)))
        x = _halve(x).flatten(1)
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        logits: Tensor = self.out(x)
        return logits


def _halve(x: Tensor) -> Tensor:
    """Max-pool 3×3/2 with the borders of TensorFlow's "same"."""
    return F.max_pool2d(x, 3, 2, ceil_mode=True)


def plain_model(seed: int) -> CifarNet:
    """All connections, with the tutorial's first weights."""
    with torch.device("meta"):
        model = CifarNet()
    return _start(model, seed)


def sparse_model(connectivity: float | None, budget: int | None, seed: int, scaled: bool = False) -> CifarNet:
    """One budget for three matrices, shared out at the start as the paper does; their dense weights never exist.

    ``scaled``: weights are stronger by 1/√connectivity of their matrix, so that activities start as in the dense network.
    """
    with torch.device("meta"):
        model = CifarNet()
    sparsify(model, connectivity, budget, include=REWIRED, allocation="paper", seed=seed, device="cpu")
    return _start(model, seed, scaled)


def shares_of(connectivity: float | None, budget: int | None) -> list[float]:
    """Connectivity of the three matrices at the start; all of it for methods that are told none."""
    if connectivity is None:
        possible = sum(n_out * n_in for n_out, n_in in _SIZES.values())
        connectivity = 1.0 if budget is None else budget / possible
    return [min(1.0, MULTIPLIERS[name] * connectivity) for name in REWIRED]


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
            first, last = layer.wiring.bounds[layer.layer_id : layer.layer_id + 2]
            theta = layer.wiring.theta
            assert theta.grad is not None
            theta.grad[first:last].add_(theta[first:last], alpha=decay)
        else:
            weight = model.get_submodule(name).get_parameter("weight")
            assert weight.grad is not None
            weight.grad.add_(weight, alpha=decay)
