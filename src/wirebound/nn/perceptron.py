"""Perceptrons by their sizes, and the first weights of those that stay dense."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def perceptron(
    sizes: Sequence[int], activation: str = "relu", bias: bool = True, device: torch.device | str | None = None
) -> nn.Sequential:
    """Linear layers of these sizes, from the inputs to the outputs, with an activation between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(sizes):
        layers += [nn.Linear(n_in, n_out, bias=bias, device=device), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def draw_weights(model: nn.Module, seed: int) -> nn.Module:
    """The model on the CPU with the first weights that torch gives to linear layers after ``manual_seed(seed)``.

    They come from a generator of their own: the global one is the caller's, and other threads draw from it.
    """
    generator = torch.Generator().manual_seed(seed)
    model = model.to_empty(device="cpu")
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.in_features)
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return model
