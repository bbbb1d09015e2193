"""Layers that ask a wiring for their weights, and ``sparsify``, which puts them into any model."""

from wirebound.nn.cells import SparseGRUCell, SparseLSTMCell, SparseRNNCell
from wirebound.nn.conv import SparseConv1d, SparseConv2d, SparseConv3d
from wirebound.nn.conv_transpose import SparseConvTranspose1d, SparseConvTranspose2d, SparseConvTranspose3d
from wirebound.nn.freezing import freeze, set_rates, unfreeze
from wirebound.nn.linear import SparseLinear
from wirebound.nn.matrix import SparseMatrix
from wirebound.nn.recurrent import SparseGRU, SparseLSTM, SparseRNN
from wirebound.nn.sparse_layer import SparseLayer, sparse_layers, wirings
from wirebound.nn.sparsify import sparsify, to_dense
from wirebound.nn.stack import SparseSequential

__all__ = [
    "SparseConv1d", "SparseConv2d", "SparseConv3d",
    "SparseConvTranspose1d", "SparseConvTranspose2d", "SparseConvTranspose3d",
    "SparseGRU", "SparseGRUCell", "SparseLSTM", "SparseLSTMCell", "SparseLayer", "SparseLinear", "SparseMatrix",
    "SparseRNN", "SparseRNNCell", "SparseSequential",
    "freeze", "set_rates", "sparse_layers", "sparsify", "to_dense", "unfreeze", "wirings",
]
