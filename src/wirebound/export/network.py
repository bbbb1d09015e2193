"""From a model to the numbers that every format is written from: its layers in order, batch norms folded away."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from wirebound.checkpoint.model_state import bare
from wirebound.checkpoint.stack import most_outputs
from wirebound.export.activation import OF_ALL
from wirebound.export.fold import fold_before, fold_behind, norm_layer
from wirebound.export.layers import ANY, Conv, ExportError, Layer, Network, NotAChain, Pool, Shape, Step
from wirebound.export.trace import Chain, trace
from wirebound.nn.activations import activation_of
from wirebound.nn.conv import SparseConv1d, SparseConv2d
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.window import settle_window
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
_VANISH = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout)
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
    if shape is not None and (not shape or min(shape) < 1):
        raise ExportError(f"input_shape (={shape}) must be numbers >= 1, the shape of one example without the batch")
    if isinstance(model, Network):
        return model if shape is None else model.sized(shape)
    return _Reader(bare(model), shape).network()


class _Reader:
    """Walks along the chain; ``dimensions`` are those of what comes out so far: flat (0), or channels and 1 or 2 more."""

    def __init__(self, model: nn.Module, shape: Shape | None) -> None:
        self.chain = trace(model)
        self.names = {id(module): name for name, module in model.named_modules()}
        self.shape, self.flat = shape, False
        self.dimensions = _first_dimensions([module for _, module in self.chain], shape)
        self.steps: list[Step] = []
        self.width: int | None = None  # features or channels so far, where they are known
        _require_outputs(self.chain, sum(p.numel() for p in model.parameters()))

    def network(self) -> Network:
        for label, module in self.chain:
            self._add(label, module)
        self._fold_forward()
        if not any(isinstance(step, Layer) for step in self.steps):
            raise ExportError("the model has no layer with connections")
        network = Network(tuple(self.steps), None, self.flat)
        if self.shape is not None:
            return network.sized(self.shape)
        if not any(isinstance(step, Conv | Pool) for step in self.steps):
            return network.sized(network.input_shape)
        return network

    def _add(self, label: str, module: Any) -> None:
        kind, name = type(module), self.names.get(id(module), type(module).__name__)
        if kind in _VANISH:
            return
        if (found := activation_of(module)) is not None:
            self._activate(label, *found)
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
            norm = norm_layer(label, name, module, self.dimensions)
            before = fold_behind(self.steps[-1], norm) if self.steps else None
            if before is not None:
                self.steps[-1] = before
            else:
                self._append(norm, norm.n_out)
        elif isinstance(module, nn.Flatten | nn.Unflatten):
            self._reshape(label, module)
        else:
            raise NotAChain(f"{label} is not a layer that can be written")

    def _require(self, label: str, *wanted: int) -> None:
        """Refuse a module that takes inputs of other dimensions than what comes out so far."""
        if self.dimensions not in wanted:
            takes = " or ".join(_SHAPES[n] for n in wanted)
            reshape = ": put nn.Flatten() before it" if wanted == (0,) else ""
            raise NotAChain(f"{label} takes inputs of shape {takes}, it is given {_SHAPES[self.dimensions]}{reshape}")

    def _append(self, layer: Layer, width: int) -> None:
        if layer.n_out < 1 or layer.n_in < 1:
            raise ExportError(f"layer {layer.name!r} ({layer.n_out} × {layer.n_in}) must have inputs and outputs")
        if self.width not in (None, width):
            raise ExportError(f"a layer with {self.width} outputs is followed by {layer.name!r} with {width} inputs")
        self.steps.append(layer)
        self.width = layer.n_out

    def _activate(self, label: str, name: str, alpha: float) -> None:
        if name in OF_ALL and self.dimensions:
            raise NotAChain(f"{label} must follow a linear layer")
        if not self.steps or self.steps[-1].activation != "linear":
            raise NotAChain(f"{label} must follow a layer, and no other activation")
        self.steps[-1] = dataclasses.replace(self.steps[-1], activation=name, alpha=alpha)

    def _reshape(self, label: str, module: nn.Flatten | nn.Unflatten) -> None:
        if isinstance(module, nn.Flatten):
            if (module.start_dim, module.end_dim) not in ((1, -1), (1, self.dimensions + 1)):
                raise NotAChain(f"{label} must flatten everything but the batch: nn.Flatten()")
            if self.dimensions:
                self.dimensions, self.width = 0, None
            if not self.steps and self.shape is not None:
                self.shape = (math.prod(self.shape),)
            return
        shape = tuple(int(size) for size in module.unflattened_size)  # type: ignore[union-attr]
        if self.steps or self.dimensions or module.dim not in (1, -1) or len(shape) not in (2, 3) or min(shape) < 1:
            raise NotAChain(f"{label} can only come first, to give flat inputs the shape (channels, height, width)")
        if self.shape is not None and math.prod(self.shape) != math.prod(shape):
            raise ExportError(f"{label} makes {shape} of inputs of shape {self.shape}")
        self.shape, self.flat, self.dimensions = shape, True, len(shape) - 1

    def _fold_forward(self) -> None:
        """Norms that no layer before them could take, into the layers behind them."""
        norms = {self.names.get(id(module)) for _, module in self.chain if type(module) in _NORMS}
        for at in range(len(self.steps) - 2, -1, -1):
            step = self.steps[at]
            if isinstance(step, Layer) and step.name in norms and step.activation == "linear":
                behind = fold_before(step, self.steps[at + 1])
                if behind is not None:
                    self.steps[at : at + 2] = [behind]


def _require_outputs(chain: Chain, held: int) -> None:
    """Refuse layers with far more outputs than the model has weights and biases: a small file can declare any number."""
    sizes = [(label, getattr(module, "out_features", getattr(module, "out_channels", 0))) for label, module in chain]
    total = sum(size for _, size in sizes)
    if total > most_outputs(held):
        widest, most = max(sizes, key=lambda item: item[1])
        raise ExportError(
            f"the layers have {total:,} outputs ({widest}: {most:,}), but the model holds only {held:,} weights and "
            f"biases: at most {most_outputs(held):,} outputs can be written"
        )


def _first_dimensions(modules: Sequence[nn.Module], shape: Shape | None) -> int:
    """Dimensions of the input beside its channels: 0, 1 or 2."""
    if shape is not None:
        if len(shape) > 3:
            raise ExportError(f"input_shape (={shape}) must have at most 3 sizes, without the batch")
        return len(shape) - 1
    known = {**_CONVS, **_POOLS, nn.BatchNorm2d: 2, **dict.fromkeys((*_LINEAR, nn.Flatten, nn.Unflatten), 0)}
    return next((known[type(module)] for module in modules if type(module) in known), 0)


def _conv(label: str, name: str, conv: Any, dimensions: int) -> Conv:
    if conv.padding_mode != "zeros":
        raise NotAChain(f"{label} has padding_mode={conv.padding_mode!r}: only zeros can be written")
    sizes = (conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    window = settle_window(dimensions, *sizes, conv.groups)
    n_in = window.group_channels * math.prod(window.kernel)
    numbers = (*_connections(name, conv, n_in), _bias(name, conv.bias))
    return Conv(name, conv.out_channels, n_in, *numbers, "linear", window=window, dimensions=dimensions)


def _pool(label: str, name: str, pool: Any) -> Pool:
    """A pooling layer of torch, as far as every format can say it."""
    kind, own = type(pool), _POOLS[type(pool)]
    if kind in _ALL:
        if pool.output_size not in (1, (1,), (1, 1)):
            raise NotAChain(f"{label} must have output_size 1, the mean of each channel; or use nn.AvgPool{own}d")
        return Pool(name, "mean", None, own)
    if pool.ceil_mode:
        raise NotAChain(f"{label} has ceil_mode=True: only ceil_mode=False can be written, with padding where needed")
    if kind in _MAX and pool.return_indices:
        raise NotAChain(f"{label} has return_indices=True: it must return one tensor")
    if getattr(pool, "divisor_override", None) is not None:
        raise NotAChain(f"{label} has divisor_override: only means of the window can be written")
    stride = pool.kernel_size if pool.stride is None else pool.stride
    window = settle_window(own, 1, 1, pool.kernel_size, stride, pool.padding, pool.dilation if kind in _MAX else 1, 1)
    window = window._replace(in_channels=ANY, out_channels=ANY)
    return Pool(name, "max" if kind in _MAX else "mean", window, own, kind in _MAX or pool.count_include_pad)


def _connections(name: str, layer: Any, n_in: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and weights of the connections of a layer, sorted."""
    if (layer.wiring.theta if isinstance(layer, SparseLayer) else layer.weight).is_meta:
        raise ExportError(f"layer {name!r} is on the meta device and has no weights: load them first")
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
    if not np.isfinite(values).all():
        raise ExportError(f"the weights of layer {name!r} must be finite as 32-bit floats")
    return rows, columns, values


def _bias(name: str, bias: torch.Tensor | None) -> np.ndarray | None:
    if bias is None:
        return None
    found: np.ndarray = bias.float().cpu().numpy().copy()
    if not np.isfinite(found).all():
        raise ExportError(f"the biases of layer {name!r} must be finite as 32-bit floats")
    return found
