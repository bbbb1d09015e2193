"""A GPT with its first connections and weights, sparse in one budget or with all weights.

    connections   by ``allocation``, where tokens, places and head count ``outer`` times: a token has one matrix for itself, and
                  with a handful of connections it could hardly be told from another
    each neuron   at least one connection to it and from it, where there are enough of them (``neurons.py``)
    weights       N(0, 1)/√(connections to a neuron), in what blocks add to the stream times 1/√(2 depth), so that its
                  variance does not grow with depth; in the head times 0.1, so that the first guesses are even
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from wirebound.nn.sparse_layer import SparseLayer, wirings
from wirebound.nn.sparsify import sparsify
from wirebound.wiring.budget import RULES, apportion, settle_budget
from wirebound_lab.gpt.model import GPT
from wirebound_lab.gpt.neurons import connect_neurons_

OUTSIDE = ("embed", "place", "head")  # what an option leaves out of the budget
_INTO_STREAM = ("attention.out", "mlp.down")  # what a block adds to the residual stream
_HEAD = 0.1


def sparse_gpt(
    budget: int | None = None, connectivity: float | None = None, *, cover_all: bool = True,
    allocation: str = "erdos-renyi", outer: float = 6.0, seed: int = 0, **shape: Any,
) -> GPT:  # fmt: skip
    """A GPT of exactly ``budget`` connections under one wiring, made on ``meta``: no dense weight is ever there.

    Without ``cover_all``, tokens, places and head stay dense and the budget is that of the blocks. ``shape`` are the arguments
    of ``GPT``.
    """
    with torch.device("meta"):
        model = GPT(**shape)
    counts = share_out(model, budget, connectivity, cover_all, allocation, outer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        exclude = () if cover_all else OUTSIDE
        sparse = sparsify(model, scope="global", allocation=counts, exclude=exclude, init="sparse-fan-in", seed=seed)
    assert isinstance(sparse, GPT)
    (wiring,) = wirings(sparse)
    for layer_id, layer in enumerate(wiring.layers):
        if layer.name not in ("embed", "place"):
            connect_neurons_(wiring, layer_id)
    _scale_first_weights_(sparse)
    return sparse


def plain_gpt(seed: int = 0, **shape: Any) -> GPT:
    """The same network with all its weights."""
    with torch.device("meta"):
        model = GPT(**shape)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                fan_in = 1 if name.startswith(("embed", "place")) else parameter.shape[1]
                parameter.normal_(0.0, fan_in**-0.5, generator=generator)
            else:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
    _scale_first_weights_(model)
    return model


def share_out(
    model: nn.Module, budget: int | None, connectivity: float | None, cover_all: bool, allocation: str, outer: float
) -> list[int]:
    """Connections of each matrix in the budget, in the order of the model."""
    if allocation not in RULES:
        raise ValueError(f"allocation (={allocation!r}) must be one of {', '.join(RULES)}")
    layers = [(name, layer) for name, layer in linear_layers(model) if cover_all or name not in OUTSIDE]
    sizes = [(layer.out_features, layer.in_features) for _, layer in layers]
    capacities = [rows * columns for rows, columns in sizes]
    weights = RULES[allocation](sizes)
    weights = [weight * (outer if name in OUTSIDE else 1.0) for (name, _), weight in zip(layers, weights, strict=True)]
    return apportion(weights, capacities, settle_budget(connectivity, budget, sum(capacities)))


def linear_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            yield name, module


@torch.no_grad()
def _scale_first_weights_(model: GPT) -> None:
    factors = dict.fromkeys(_INTO_STREAM, 1 / math.sqrt(2 * model.depth)) | {"head": _HEAD}
    for name, module in model.named_modules():
        for end, factor in factors.items():
            if name.endswith(end):
                _weights(module).mul_(factor)


def _weights(module: nn.Module) -> Tensor:
    """What can be scaled in place: θ of a sparse layer, or the matrix."""
    if isinstance(module, SparseLayer):
        start, end = module.wiring.bounds[module.layer_id : module.layer_id + 2]
        return module.wiring.theta.detach()[start:end]
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight
