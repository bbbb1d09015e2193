"""``to_dense``: the same model with ordinary torch layers, for export and for tools that know nothing of wirings."""

from __future__ import annotations

import copy

from torch import nn

from wirebound.nn.attention import restore_fast_paths
from wirebound.nn.masked import unmask_parameters
from wirebound.nn.sparse_layer import replace_modules
from wirebound.nn.stack import without_runs


def to_dense(model: nn.Module) -> nn.Module:
    """A copy of the model in which every sparse layer is its torch twin, the weights scattered in.

    Dense by nature: it allocates every matrix in full.
    """
    model = restore_fast_paths(unmask_parameters(without_runs(copy.deepcopy(model))))
    model.__dict__.pop("sparsified", None)
    return replace_modules(model, _twins(model))


def _twins(module: nn.Module) -> dict[int, nn.Module]:
    """The torch twin of each sparse module; what is inside of one is not looked at."""
    make = getattr(module, "dense_twin", None)
    if make is not None:
        return {id(module): make().train(module.training)}
    found: dict[int, nn.Module] = {}
    for child in module.children():
        found.update(_twins(child))
    return found
