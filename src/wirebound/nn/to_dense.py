"""``to_dense``: the same model with ordinary torch layers, for export and for tools that know nothing of wirings."""

from __future__ import annotations

import copy

from torch import nn

from wirebound.nn.part import SparseLayer


def to_dense(model: nn.Module) -> nn.Module:
    """A copy of the model in which every sparse layer is its torch twin, the weights scattered in.

    Dense by nature: it allocates every matrix in full.
    """
    twins: dict[int, nn.Module] = {}

    def convert(module: nn.Module) -> nn.Module:
        if isinstance(module, SparseLayer):
            if id(module) not in twins:
                twins[id(module)] = module.dense_twin().train(module.training)
            return twins[id(module)]
        for name, child in module.named_children():
            module._modules[name] = convert(child)
        return module

    # Copy first: conversion replaces children in place.
    return convert(copy.deepcopy(model))
