"""Layers that ask a wiring for their weights, and ``sparsify``, which puts them into any model."""

from wirebound.nn.centring import centre_gradients_
from wirebound.nn.conv import SparseConv1d, SparseConv2d, SparseConv3d
from wirebound.nn.conv_transpose import SparseConvTranspose1d, SparseConvTranspose2d, SparseConvTranspose3d
from wirebound.nn.correlated import wire_by_correlation_
from wirebound.nn.dropout import Dropout
from wirebound.nn.label_loss import LabelCrossEntropy, label_cross_entropy
from wirebound.nn.learning_rate import parameter_groups
from wirebound.nn.linear import SparseLinear
from wirebound.nn.recurrent import SparseGRU, SparseGRUCell, SparseLSTM, SparseLSTMCell, SparseRNN, SparseRNNCell
from wirebound.nn.recurrent_pass import SparseMatrix
from wirebound.nn.sparse_layer import SparseLayer, freeze, set_rates, sparse_layers, unfreeze, wirings
from wirebound.nn.sparsify import sparsify, to_dense
from wirebound.nn.stack import SparseSequential
from wirebound.nn.top_labels import TopLabels, top_labels

__all__ = [
    "Dropout", "LabelCrossEntropy", "SparseConv1d", "SparseConv2d", "SparseConv3d", "SparseConvTranspose1d", "SparseConvTranspose2d",
    "SparseConvTranspose3d", "SparseGRU", "SparseGRUCell", "SparseLSTM", "SparseLSTMCell", "SparseLayer",
    "SparseLinear", "SparseMatrix", "SparseRNN", "SparseRNNCell", "SparseSequential", "TopLabels", "centre_gradients_", "freeze",
    "label_cross_entropy", "parameter_groups", "set_rates", "sparse_layers", "sparsify", "to_dense", "top_labels", "unfreeze",
    "wire_by_correlation_", "wirings",
]  # fmt: skip
