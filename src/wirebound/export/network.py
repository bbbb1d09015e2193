"""A plain stack as numbers: the connections of each layer, sorted by row, with biases and activations.

Every format is written from this, and ``Network.forward`` is what each is compared with.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from wirebound.core import mapping
from wirebound.export.errors import ExportError
from wirebound.nn.linear import SparseLinear
from wirebound.ops.layout import rows_of
from wirebound.train.stack import read_stack

ACTIVATIONS = ("linear", "relu", "tanh", "sigmoid")  # by their numbers in a stack


@dataclass(frozen=True, eq=False)
class Layer:
    """y = activation(W x + b), W as a list of connections sorted by row, then column."""

    name: str
    n_out: int
    n_in: int
    rows: np.ndarray  # int64, which output
    columns: np.ndarray  # int64, which input
    weights: np.ndarray  # float32; a newborn's is ±0
    bias: np.ndarray | None  # float32
    activation: str

    def __len__(self) -> int:
        """Connections of this layer."""
        return len(self.weights)

    def matrix(self) -> Any:
        """W as a ``scipy.sparse.csr_array`` with every connection in it, newborns of weight 0 too."""
        from scipy import sparse

        indptr = np.searchsorted(self.rows, np.arange(self.n_out + 1)).astype(np.int32)
        parts = (self.weights, self.columns.astype(np.int32), indptr)
        return sparse.csr_array(parts, shape=(self.n_out, self.n_in))

    def dense(self) -> np.ndarray:
        """W in full. Dense by nature: for formats that know nothing else."""
        full = np.zeros((self.n_out, self.n_in), dtype=np.float32)
        full[self.rows, self.columns] = self.weights
        return full

    def activate(self, y: np.ndarray) -> np.ndarray:
        if self.activation == "relu":
            return np.maximum(y, 0)
        if self.activation == "tanh":
            return np.tanh(y)
        if self.activation == "sigmoid":
            return 1 / (1 + np.exp(-y))
        return y


@dataclass(frozen=True)
class Network:
    """Layers one after another."""

    layers: tuple[Layer, ...]

    @property
    def sizes(self) -> list[int]:
        return [self.layers[0].n_in, *(layer.n_out for layer in self.layers)]

    @property
    def connections(self) -> int:
        return sum(len(layer) for layer in self.layers)

    @property
    def possible(self) -> int:
        return sum(layer.n_out * layer.n_in for layer in self.layers)

    def forward(self, x: np.ndarray, dtype: type = np.float32) -> np.ndarray:
        """Outputs for inputs [examples, features], computed by SciPy from the connections.

        The output of an example does not depend on which others are with it, to the last bit.
        """
        y: np.ndarray = np.asarray(x, dtype=dtype)
        for layer in self.layers:
            y = (layer.matrix().astype(dtype) @ np.ascontiguousarray(y.T)).T
            y = layer.activate(y if layer.bias is None else y + layer.bias)
        return y


def read_network(model: nn.Module | Network) -> Network:
    """The layers of a plain stack of (sparse) linear layers and ReLU, tanh or sigmoid."""
    if isinstance(model, Network):
        return model
    stack = read_stack(model)
    if isinstance(stack, str):
        raise ExportError(f"only a plain stack of linear layers can be written in this format: {stack}")
    for before, after in itertools.pairwise(stack):
        if before.linear.out_features != after.linear.in_features:
            raise ExportError(
                f"a layer with {before.linear.out_features} outputs is followed by one with "
                f"{after.linear.in_features} inputs"
            )
    names = {id(module): name for name, module in model.named_modules()}
    layers = [_layer(names[id(item.linear)], item.linear, ACTIVATIONS[item.activation]) for item in stack]
    return Network(tuple(layers))


@torch.no_grad()
def _layer(name: str, linear: SparseLinear | nn.Linear, activation: str) -> Layer:
    if isinstance(linear, SparseLinear):
        wiring = linear.wiring
        index = wiring.layer_index(linear.part)
        code = index.layer_code()
        weight = mapping.weights(wiring.theta[index.start : index.end], code)
        rows, values = rows_of(code).cpu().numpy(), weight.float().cpu().numpy()
        columns = np.repeat(np.arange(linear.in_features), index.layer_colptr().diff().cpu().numpy())
        if wiring.alive is not None:
            alive = wiring.alive[index.start : index.end].cpu().numpy()
            rows, columns, values = rows[alive], columns[alive], values[alive]
        order = np.argsort(rows, kind="stable")  # columns already rise within a row
        rows, columns, values = rows[order], columns[order], values[order]
    else:
        values = linear.weight.float().cpu().numpy().reshape(-1)
        # Methods that store matrices in full leave zeros where no connection is.
        kept = np.flatnonzero(values)
        rows, columns = np.divmod(kept, linear.in_features)
        values = values[kept]
    if not np.isfinite(values).all():
        raise ExportError(f"the weights of layer {name!r} must be finite")
    bias = None if linear.bias is None else linear.bias.float().cpu().numpy().copy()
    return Layer(name, linear.out_features, linear.in_features, rows, columns, values, bias, activation)
