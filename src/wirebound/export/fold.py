"""Batch norm in eval mode is a factor and a shift for each channel: folded into the layer before it or behind it.

Where neither can take it (behind a pooling layer, before a convolution with padding, whose zeros it would shift) it is
a layer of its own with one connection for each channel.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from torch import nn

from wirebound.export.layers import Conv, ExportError, Layer, NotAChain, Step
from wirebound.ops import ConvWindow


def norm_layer(label: str, name: str, norm: nn.BatchNorm1d | nn.BatchNorm2d, dimensions: int) -> Layer:
    """A batch norm as a layer with one connection for each channel; ``dimensions`` are those beside the channels."""
    if norm.running_mean is None or norm.running_var is None:
        raise NotAChain(f"{label} has no running statistics (track_running_stats=False), so its output depends on the batch")
    scale = 1 / (norm.running_var.double() + norm.eps).sqrt()
    shift = -norm.running_mean.double() * scale
    if norm.weight is not None:
        scale, shift = scale * norm.weight, shift * norm.weight
    if norm.bias is not None:
        shift = shift + norm.bias
    count = norm.num_features
    weights, bias = (tensor.cpu().numpy().astype(np.float32) for tensor in (scale, shift))
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise ExportError(f"the statistics and weights of {label} must be finite as 32-bit floats, the variance >= 0")
    rows = np.arange(count)
    if not dimensions:
        return Layer(name, count, count, rows, rows, weights, bias, "linear")
    window = ConvWindow(count, count, (1, 1), (1, 1), (0, 0), (0, 0), (1, 1), count)
    columns = np.zeros_like(rows)
    return Conv(name, count, 1, rows, columns, weights, bias, "linear", window=window, dimensions=dimensions)


def fold_behind(layer: Step, norm: Layer) -> Layer | None:
    """``layer`` with a norm that follows it folded in; None if that cannot be."""
    if not isinstance(layer, Layer) or layer.activation != "linear" or layer.n_out != norm.n_out:
        return None
    scale, shift = norm.weights.astype(np.float64), norm.bias
    assert shift is not None
    weights = (layer.weights * scale[layer.rows]).astype(np.float32)
    bias = (shift + (0 if layer.bias is None else layer.bias * scale)).astype(np.float32)
    return dataclasses.replace(layer, weights=weights, bias=bias)


def fold_before(norm: Layer, layer: Step) -> Layer | None:
    """``layer`` with a norm that comes right before it folded in; None if that cannot be."""
    if not isinstance(layer, Layer):
        return None
    if isinstance(layer, Conv):
        if any(layer.window.before + layer.window.after) or norm.n_out != layer.window.in_channels:
            return None
        per_group = layer.n_out // layer.window.groups
        channels = layer.columns // math.prod(layer.window.kernel) + layer.rows // per_group * layer.window.group_channels
    else:
        if layer.n_in % norm.n_out:
            return None
        channels = layer.columns // (layer.n_in // norm.n_out)  # of a flattened image, each channel in one piece
    scale, shift = norm.weights.astype(np.float64), norm.bias
    assert shift is not None
    weights = layer.weights.astype(np.float64)
    more = np.bincount(layer.rows, weights * shift[channels], layer.n_out)
    bias = (more + (0 if layer.bias is None else layer.bias)).astype(np.float32)
    return dataclasses.replace(layer, weights=(weights * scale[channels]).astype(np.float32), bias=bias)
