"""From a model to the numbers that every format is written from: its layers in order, batch norms folded away.

Batch norm in eval mode is a factor and a shift for each channel, folded into the layer before it or behind it. Where
neither can take it (behind pooling, before padding, whose zeros it would shift) it is a layer of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from wirebound.checkpoint.model_state import bare
from wirebound.checkpoint.stack import most_outputs
from wirebound.export.layers import ANY, OF_ALL, Conv, Layer, Network, NotAChain, Pool, Shape, Step, require
from wirebound.export.trace import trace
from wirebound.nn.activations import activation_of
from wirebound.nn.conv import SparseConv1d, SparseConv2d, settle_window
from wirebound.nn.dropout import Dropout
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.ops import ConvWindow
from wirebound.ops.layout import rows_of
from wirebound.wiring import mapping

__all__ = ["Conv", "Layer", "Network", "Pool", "read_network"]

# The dimensions beside the channels that modules take; a BatchNorm1d takes flat inputs too.
_LINEAR = (SparseLinear, nn.Linear)
_CONVS: dict[type[nn.Module], int] = {SparseConv1d: 1, SparseConv2d: 2, nn.Conv1d: 1, nn.Conv2d: 2}
_MAX: dict[type[nn.Module], int] = {nn.MaxPool1d: 1, nn.MaxPool2d: 2}
_ALL: dict[type[nn.Module], int] = {nn.AdaptiveAvgPool1d: 1, nn.AdaptiveAvgPool2d: 2}
_POOLS: dict[type[nn.Module], int] = {**_MAX, **_ALL, nn.AvgPool1d: 1, nn.AvgPool2d: 2}
_NORMS: dict[type[nn.Module], tuple[int, ...]] = {nn.BatchNorm1d: (0, 1), nn.BatchNorm2d: (2,)}
_VANISH = (nn.Identity, Dropout, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_SHAPES = ("(features)", "(channels, length)", "(channels, height, width)")


@torch.no_grad()
def read_network(model: nn.Module | Network, input_shape: Sequence[int] | None = None) -> Network:
    """The layers of a model that is a chain, in eval mode.

    Args:
        model: linear layers and convolutions with activations, batch norms, pooling, dropout and flattening between
            them, as an ``nn.Sequential`` or as a class whose ``forward`` calls them one after another.
        input_shape: of one example, without the batch, such as (1, 28, 28): for models with convolutions.
    """
    shape = None if input_shape is None else tuple(int(size) for size in input_shape)
    if shape is not None:
        rule = "numbers >= 1, the shape of one example without the batch"
        require(shape and min(shape) >= 1, f"input_shape (={shape}) must be {rule}")
    if isinstance(model, Network):
        return model if shape is None else model.sized(shape)
    return _Reader(bare(model), shape).network()


class _Reader:
    """Walks along the chain; ``dimensions`` are those of what comes out so far: flat (0), or channels and 1 or 2 more."""

    def __init__(self, model: nn.Module, shape: Shape | None) -> None:
        self.chain = trace(model)
        self.names = {id(module): name for name, module in model.named_modules()}
        self.shape, self.flat = shape, False
        self.steps: list[Step] = []
        self.width: int | None = None  # features or channels so far, where they are known
        if shape is not None:
            require(len(shape) <= 3, f"input_shape (={shape}) must have at most 3 sizes, without the batch")
            self.dimensions = len(shape) - 1
        else:
            known = {**_CONVS, **_POOLS, nn.BatchNorm2d: 2, **dict.fromkeys((*_LINEAR, nn.Flatten, nn.Unflatten), 0)}
            self.dimensions = next((known[type(m)] for _, m in self.chain if type(m) in known), 0)
        # A small file can declare layers with any number of outputs.
        sizes = [(getattr(m, "out_features", getattr(m, "out_channels", 0)), label) for label, m in self.chain]
        total, held = sum(size for size, _ in sizes), sum(p.numel() for p in model.parameters())
        (most, widest), allowed = max(sizes, default=(0, "")), most_outputs(held)
        told = f"but the model holds only {held:,} weights and biases: at most {allowed:,} outputs can be written"
        require(total <= allowed, f"the layers have {total:,} outputs ({widest}: {most:,}), {told}")

    def network(self) -> Network:
        for label, module in self.chain:
            self._add(label, module)
        # Norms that no layer before them could take, into the layers behind them.
        norms = {self.names.get(id(module)) for _, module in self.chain if type(module) in _NORMS}
        for at in range(len(self.steps) - 2, -1, -1):
            step = self.steps[at]
            if isinstance(step, Layer) and step.name in norms and step.activation == "linear":
                behind = _fold_before(step, self.steps[at + 1])
                if behind is not None:
                    self.steps[at : at + 2] = [behind]
        require(any(isinstance(step, Layer) for step in self.steps), "the model has no layer with connections")
        network = Network(tuple(self.steps), None, self.flat)
        if self.shape is None and any(isinstance(step, Conv | Pool) for step in self.steps):
            return network
        return network.sized(self.shape or network.input_shape)

    def _add(self, label: str, module: Any) -> None:
        kind, name = type(module), self.names.get(id(module), type(module).__name__)
        if kind in _VANISH:
            return
        if (found := activation_of(module)) is not None:
            require(found[0] not in OF_ALL or not self.dimensions, f"{label} must follow a linear layer", NotAChain)
            follows = self.steps and self.steps[-1].activation == "linear"
            require(follows, f"{label} must follow a layer, and no other activation", NotAChain)
            self.steps[-1] = replace(self.steps[-1], activation=found[0], alpha=found[1])
        elif kind in _LINEAR:
            self._require(label, 0)
            numbers = (*_connections(name, module, module.in_features), _bias(name, module.bias))
            self._append(Layer(name, module.out_features, module.in_features, *numbers, "linear"), module.in_features)
        elif kind in _CONVS:
            self._require(label, _CONVS[kind])
            self._append(_conv(label, name, module, _CONVS[kind]), module.in_channels)
        elif kind in _POOLS:
            self._require(label, _POOLS[kind])
            self.steps.append(_pool(label, name, module))
        elif kind in _NORMS:
            self._require(label, *_NORMS[kind])
            norm = _norm(label, name, module, self.dimensions)
            before = _fold_behind(self.steps[-1], norm) if self.steps else None
            if before is not None:
                self.steps[-1] = before
            else:
                self._append(norm, norm.n_out)
        elif isinstance(module, nn.Flatten):
            everything = (module.start_dim, module.end_dim) in ((1, -1), (1, self.dimensions + 1))
            require(everything, f"{label} must flatten everything but the batch: nn.Flatten()", NotAChain)
            if self.dimensions:
                self.dimensions, self.width = 0, None
            if not self.steps and self.shape is not None:
                self.shape = (math.prod(self.shape),)
        elif isinstance(module, nn.Unflatten):
            shape = tuple(int(size) for size in module.unflattened_size)  # type: ignore[union-attr]
            first = not self.steps and not self.dimensions and module.dim in (1, -1)
            rule = "can only come first, to give flat inputs the shape (channels, height, width)"
            require(first and len(shape) in (2, 3) and min(shape) >= 1, f"{label} {rule}", NotAChain)
            fits = self.shape is None or math.prod(self.shape) == math.prod(shape)
            require(fits, f"{label} makes {shape} of inputs of shape {self.shape}")
            self.shape, self.flat, self.dimensions = shape, True, len(shape) - 1
        else:
            raise NotAChain(f"{label} is not a layer that can be written")

    def _require(self, label: str, *wanted: int) -> None:
        if self.dimensions not in wanted:
            takes = " or ".join(_SHAPES[n] for n in wanted)
            reshape = ": put nn.Flatten() before it" if wanted == (0,) else ""
            raise NotAChain(f"{label} takes inputs of shape {takes}, it is given {_SHAPES[self.dimensions]}{reshape}")

    def _append(self, layer: Layer, width: int) -> None:
        sized = layer.n_out >= 1 and layer.n_in >= 1
        require(sized, f"layer {layer.name!r} ({layer.n_out} × {layer.n_in}) must have inputs and outputs")
        fits = self.width in (None, width)
        require(fits, f"a layer with {self.width} outputs is followed by {layer.name!r} with {width} inputs")
        self.steps.append(layer)
        self.width = layer.n_out


def _norm(label: str, name: str, norm: nn.BatchNorm1d | nn.BatchNorm2d, dimensions: int) -> Layer:
    """A batch norm as a layer with one connection for each channel; ``dimensions`` are those beside the channels."""
    if norm.running_mean is None or norm.running_var is None:
        raise NotAChain(f"{label} has no running statistics (track_running_stats=False), so its output depends on the batch")
    scale = 1 / (norm.running_var.double() + norm.eps).sqrt()
    shift = -norm.running_mean.double() * scale
    if norm.weight is not None:
        scale, shift = scale * norm.weight, shift * norm.weight
    if norm.bias is not None:
        shift = shift + norm.bias
    count, rows = norm.num_features, np.arange(norm.num_features)
    weights, bias = (tensor.cpu().numpy().astype(np.float32) for tensor in (scale, shift))
    finite = np.isfinite(weights).all() and np.isfinite(bias).all()
    require(finite, f"the statistics and weights of {label} must be finite as 32-bit floats, the variance >= 0")
    if not dimensions:
        return Layer(name, count, count, rows, rows, weights, bias, "linear")
    window = ConvWindow(count, count, (1, 1), (1, 1), (0, 0), (0, 0), (1, 1), count)
    columns = np.zeros_like(rows)
    return Conv(name, count, 1, rows, columns, weights, bias, "linear", window=window, dimensions=dimensions)


def _fold_behind(layer: Step, norm: Layer) -> Layer | None:
    """``layer`` with a norm that follows it folded in; None if that cannot be."""
    if not isinstance(layer, Layer) or layer.activation != "linear" or layer.n_out != norm.n_out:
        return None
    scale, shift = norm.weights.astype(np.float64), norm.bias
    assert shift is not None
    weights = (layer.weights * scale[layer.rows]).astype(np.float32)
    bias = (shift + (0 if layer.bias is None else layer.bias * scale)).astype(np.float32)
    return replace(layer, weights=weights, bias=bias)


def _fold_before(norm: Layer, layer: Step) -> Layer | None:
    """``layer`` with a norm that comes right before it folded in; None if that cannot be."""
    if isinstance(layer, Conv):
        if any(layer.window.before + layer.window.after) or norm.n_out != layer.window.in_channels:
            return None
        channels = layer.channels
    elif isinstance(layer, Layer) and not layer.n_in % norm.n_out:
        channels = layer.columns // (layer.n_in // norm.n_out)  # of a flattened image, each channel in one piece
    else:
        return None
    scale, shift, weights = norm.weights.astype(np.float64), norm.bias, layer.weights.astype(np.float64)
    assert shift is not None
    more = np.bincount(layer.rows, weights * shift[channels], layer.n_out)
    bias = (more + (0 if layer.bias is None else layer.bias)).astype(np.float32)
    return replace(layer, weights=(weights * scale[channels]).astype(np.float32), bias=bias)


def _conv(label: str, name: str, conv: Any, dimensions: int) -> Conv:
    zeros = conv.padding_mode == "zeros"
    require(zeros, f"{label} has padding_mode={conv.padding_mode!r}: only zeros can be written", NotAChain)
    sizes = (conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    window = settle_window(dimensions, *sizes, conv.groups)
    n_in = window.group_channels * math.prod(window.kernel)
    numbers = (*_connections(name, conv, n_in), _bias(name, conv.bias))
    return Conv(name, conv.out_channels, n_in, *numbers, "linear", window=window, dimensions=dimensions)


def _pool(label: str, name: str, pool: Any) -> Pool:
    kind, own, largest = type(pool), _POOLS[type(pool)], type(pool) in _MAX
    if kind in _ALL:
        of_channel = pool.output_size in (1, (1,), (1, 1))
        require(of_channel, f"{label} must have output_size 1, the mean of each channel; or use nn.AvgPool{own}d", NotAChain)
        return Pool(name, "mean", None, own)
    for setting, way_out in (
        ("ceil_mode", "only ceil_mode=False can be written, with padding where needed"),
        ("return_indices", "it must return one tensor"),
        ("divisor_override", "only means of the window can be written"),
    ):
        given = getattr(pool, setting, None)
        require(not given, f"{label} has {setting}={given}: {way_out}", NotAChain)
    stride = pool.kernel_size if pool.stride is None else pool.stride
    window = settle_window(own, 1, 1, pool.kernel_size, stride, pool.padding, pool.dilation if largest else 1, 1)
    window = window._replace(in_channels=ANY, out_channels=ANY)
    return Pool(name, "max" if largest else "mean", window, own, largest or pool.count_include_pad)


def _connections(name: str, layer: Any, n_in: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and weights of the connections of a layer, sorted."""
    empty = (layer.wiring.theta if isinstance(layer, SparseLayer) else layer.weight).is_meta
    require(not empty, f"layer {name!r} is on the meta device and has no weights: load them first")
    if isinstance(layer, SparseLayer):
        wiring, index = layer.wiring, layer.wiring.layer_index(layer.layer_id)
        packed_rows, theta = index.layer_packed_rows(), wiring.theta[index.start : index.end]
        rows = rows_of(packed_rows).cpu().numpy()
        values = mapping.weights(theta, packed_rows).float().cpu().numpy()
        columns = np.repeat(np.arange(n_in), index.layer_colptr().diff().cpu().numpy())
        there = np.ones(len(rows), dtype=bool)
        if wiring.alive is not None:
            there &= wiring.alive[index.start : index.end].cpu().numpy()
        if wiring.sign_bound:
            there &= ~(theta < 0).cpu().numpy()  # dormant: it has no weight
        order = np.argsort(rows[there], kind="stable")  # columns already rise within a row
        rows, columns, values = (array[there][order] for array in (rows, columns, values))
    else:
        values = layer.weight.float().cpu().numpy().reshape(-1)
        kept = np.flatnonzero(values)  # methods that store matrices in full leave zeros where no connection is
        rows, columns = np.divmod(kept, max(1, n_in))
        values = values[kept]
    require(np.isfinite(values).all(), f"the weights of layer {name!r} must be finite as 32-bit floats")
    return rows, columns, values


def _bias(name: str, bias: torch.Tensor | None) -> np.ndarray | None:
    found = None if bias is None else bias.float().cpu().numpy().copy()
    require(found is None or np.isfinite(found).all(), f"the biases of layer {name!r} must be finite as 32-bit floats")
    return found
