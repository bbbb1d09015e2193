"""Layers that ask a wiring for their weights, and ``sparsify``, which puts them into any model."""

from wirebound.nn.conv import SparseConv1d, SparseConv2d
from wirebound.nn.linear import SparseLinear
from wirebound.nn.part import SparseLayer, sparse_layers, wirings
from wirebound.nn.sparsify import sparsify
from wirebound.nn.stack import SparseSequential
from wirebound.nn.to_dense import to_dense

__all__ = [
    "SparseConv1d",
    "SparseConv2d",
    "SparseLayer",
    "SparseLinear",
    "SparseSequential",
    "sparse_layers",
    "sparsify",
    "to_dense",
    "wirings",
]
