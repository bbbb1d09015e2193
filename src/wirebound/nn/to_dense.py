"""``to_dense``: the same model with ordinary torch layers, for export and for tools that know nothing of wirings."""

from __future__ import annotations

import copy

from torch import nn

from wirebound.nn.matrix import SparseMatrix
from wirebound.nn.part import SparseLayer, replace_modules
from wirebound.nn.recurrent import SparseRecurrent
from wirebound.nn.stack import without_runs


def to_dense(model: nn.Module) -> nn.Module:
    """A copy of the model in which every sparse layer is its torch twin, the weights scattered in.

    Dense by nature: it allocates every matrix in full.
    """
    model = without_runs(copy.deepcopy(model))
    layers = [
        module
        for module in model.modules()
        if isinstance(module, SparseRecurrent | SparseLayer) and not isinstance(module, SparseMatrix)
    ]
    twins = {id(layer): layer.dense_twin().train(layer.training) for layer in layers}
    return replace_modules(model, twins)
