"""Scaling of inputs and targets folded into the weights of a network, so that it takes and gives raw numbers."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler

from wirebound.export.network import Layer, Network


def fold_inputs(network: Network, scaler: StandardScaler) -> Network:
    """The network that takes what ``scaler`` takes."""
    first = network.weighted[0]
    weights = first.weights / scaler.scale_[first.columns]
    shift = np.bincount(first.rows, weights * scaler.mean_[first.columns], first.n_out)
    return Network((_changed(first, weights, (0 if first.bias is None else first.bias) - shift), *network.layers[1:]))


def fold_targets(network: Network, scaler: StandardScaler) -> Network:
    """The network that gives what ``scaler`` took."""
    last = network.weighted[-1]
    bias = (0 if last.bias is None else last.bias) * scaler.scale_ + scaler.mean_
    return Network((*network.layers[:-1], _changed(last, last.weights * scaler.scale_[last.rows], bias)))


def _changed(layer: Layer, weights: np.ndarray, bias: np.ndarray) -> Layer:
    parts = (weights.astype(np.float32), np.asarray(bias, dtype=np.float32))
    return Layer(layer.name, layer.n_out, layer.n_in, layer.rows, layer.columns, *parts, layer.activation)
