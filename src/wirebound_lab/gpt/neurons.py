"""Neurons that nothing leads to or from, or that never speak: how many a GPT has, and how it starts without the former."""

import torch
from torch import Tensor, nn

from wirebound.nn.sparse_layer import SparseLayer
from wirebound.ops.layout import rows_of
from wirebound.wiring import Wiring
from wirebound_lab.gpt.model import GPT


def fans(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """(connections of each output neuron, connections of each input neuron) of a linear layer, sparse or not."""
    if not isinstance(layer, SparseLayer):
        there = layer.weight != 0
        assert isinstance(there, Tensor)
        return there.sum(1), there.sum(0)
    index, shape = layer.wiring.layer_index(layer.layer_id), layer.wiring.layers[layer.layer_id]
    return torch.bincount(rows_of(index.layer_packed_rows()), minlength=shape.n_out), index.layer_colptr().diff()


@torch.no_grad()
def dead_neurons(model: GPT, tokens: Tensor) -> dict[str, int]:
    """How many hidden neurons there are, have no connection to them or from them, and are never above 0 on these tokens."""
    highest: list[Tensor] = []
    handles = [mlp.up.register_forward_hook(lambda _, __, y: highest.append(y.flatten(0, -2).amax(0))) for mlp in model.mlps()]
    try:
        for part in tokens:
            model(part[None])
    finally:
        for handle in handles:
            handle.remove()
    silent = torch.stack(highest).view(len(tokens), model.depth, -1).amax(0) <= 0
    alone = torch.stack([(fans(mlp.up)[0] == 0) | (fans(mlp.down)[1] == 0) for mlp in model.mlps()])
    found = {"unconnected_neurons": alone, "silent_neurons": silent, "dead_neurons": alone | silent}
    return {"hidden_neurons": silent.numel(), **{name: int(neurons.sum()) for name, neurons in found.items()}}


@torch.no_grad()
def connect_neurons_(wiring: Wiring, layer_id: int) -> None:
    """Move connections of a layer so that no neuron is without one, as far as others have more than one; K stays, and θ.

    A connection moves along its column to a row that had none, then others along their rows to columns that had none. To be
    called before a method is made.
    """
    shape, first = wiring.layers[layer_id], wiring.geometry.position_start[layer_id]
    for by_row in (True, False):
        start, end = wiring.bounds[layer_id : layer_id + 2]
        places = wiring.positions()[start:end] - first
        column, row = places // shape.n_out, places % shape.n_out
        own = row if by_row else column
        empty = torch.nonzero(torch.bincount(own, minlength=shape.n_out if by_row else shape.n_in) == 0).view(-1)
        spare = _beyond_the_first(own)
        count = min(len(empty), len(spare))
        if not count:
            continue
        dead = spare[torch.linspace(0, len(spare) - 1, count).long()]  # from all over the layer
        new = column[dead] * shape.n_out + empty[:count] if by_row else empty[:count] * shape.n_out + row[dead]
        theta = wiring.theta.detach()[start + dead]
        order = new.argsort()
        wiring.replace_(start + dead, first + new[order], [], theta[order])


def _beyond_the_first(neurons: Tensor) -> Tensor:
    """The sorted numbers of those connections whose neuron has another one before them."""
    order = torch.argsort(neurons, stable=True)
    same = neurons[order][1:] == neurons[order][:-1]
    return order[1:][same].sort().values
