"""Learning rates of sparse layers, from the one that suits the dense network.

A neuron with n inputs has weights of about 1/√n, so that its sum is of order 1. Where only n' of them are connected,
weights are larger by √(n/n'), and so must be the steps that change them by the same share. Below some ten inputs there
is nothing more to gain: with so few, each connection moves the neuron by itself.

    η' = η √(possible / (K + 10 · neurons)), at least η

The exponent and the ten were found on MNIST perceptrons from 0.3 to 100 % under SGD, momentum and Adam
(``benchmarks/learning_rates.py``).
"""

import math
from typing import Any

from torch import nn

from wirebound.nn.sparse_layer import sparse_layers, wirings
from wirebound.schedule import check_rate
from wirebound.wiring import Wiring

_FEWEST = 10  # inputs of a neuron: with fewer, the rate rises no more


def lr_factor(wiring: Wiring) -> float:
    """How many times higher than in the dense network the learning rate of a wiring's layers should be."""
    possible, neurons = wiring.geometry.possible, sum(wiring.geometry.n_out)
    return max(1.0, math.sqrt(possible / max(1, wiring.budget + _FEWEST * neurons)))


def parameter_groups(model: nn.Module, lr: float, **options: Any) -> list[dict[str, Any]]:
    """The parameters of a sparsified model for a torch optimiser, with a learning rate for each part.

    Sparse layers, biases included, get ``lr_factor`` times ``lr``, the rate that you would use for the dense network;
    all other parameters get ``lr`` itself. ``options`` are the same for all groups, such as ``weight_decay``.

        optimizer = torch.optim.Adam(wb.parameter_groups(model, lr=0.002))
    """
    check_rate("lr", lr)
    factors = {id(wiring.theta): lr_factor(wiring) for wiring in wirings(model)}
    for _, layer in sparse_layers(model):
        for parameter in layer.parameters():
            factors.setdefault(id(parameter), lr_factor(layer.wiring))
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        groups.setdefault(factors.get(id(parameter), 1.0), []).append(parameter)
    return [{"params": parameters, "lr": lr * factor, **options} for factor, parameters in groups.items()]
