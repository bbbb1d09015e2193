"""Perceptrons by their sizes, and the first weights of those that stay dense."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from wirebound.nn.dropout import Dropout

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def perceptron(
    sizes: Sequence[int], activation: str = "relu", bias: bool = True, device: torch.device | str | None = None,
    dropout: Sequence[float] = (0.0, 0.0), seed: int = 0,
) -> nn.Sequential:  # fmt: skip
    """Linear layers of these sizes, from the inputs to the outputs, with an activation between them.

    ``dropout``: shares of the inputs and of the hidden units that are left out in training; ``seed`` decides which.
    """
    layers: list[nn.Module] = []
    for index, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        if share := dropout[min(index, 1)]:
            layers.append(Dropout(share, seed % (1 << 31), index))
        layers += [nn.Linear(n_in, n_out, bias=bias, device=device), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def draw_weights(model: nn.Module, seed: int) -> nn.Module:
    """The model on the CPU with the first weights that torch gives to linear layers after ``manual_seed(seed)``.

    They come from a generator of their own: the global one is the caller's, and other threads draw from it.
    """
    generator = torch.Generator().manual_seed(seed)
    model = model.to_empty(device="cpu")
    for layer in model.modules():
        if isinstance(layer, Dropout):
            layer.calls.zero_()
        elif isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.in_features)
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return model
