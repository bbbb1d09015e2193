"""Dead neurons of a GPT: hidden neurons of its blocks that nothing leads to or from, or that never speak."""

import torch
from torch import Tensor, nn

from wirebound.nn.sparse_layer import SparseLayer
from wirebound.ops.layout import rows_of
from wirebound_lab.gpt import GPT


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
    counts = {"hidden_neurons": silent.numel(), "unconnected_neurons": alone.sum(), "silent_neurons": silent.sum()}
    return {name: int(count) for name, count in (counts | {"dead_neurons": (alone | silent).sum()}).items()}
