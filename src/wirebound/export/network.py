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
from wirebound.export.activation import OF_ALL, activation_of
from wirebound.export.errors import ExportError, NotAChain
from wirebound.export.fold import NORMS, fold_before, fold_behind, norm_layer
from wirebound.export.layers import Conv, Layer, Network, Pool, Shape, Step
from wirebound.export.pooling import POOLS, pool_layer
from wirebound.export.room import require_outputs
from wirebound.export.trace import trace
from wirebound.nn.conv import SparseConv1d, SparseConv2d
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.window import settle_window
from wirebound.ops.layout import rows_of
from wirebound.wiring import mapping

__all__ = ["Conv", "Layer", "Network", "Pool", "read_network"]

_LINEAR = (SparseLinear, nn.Linear)
_CONVS: dict[type[nn.Module], int] = {SparseConv1d: 1, SparseConv2d: 2, nn.Conv1d: 1, nn.Conv2d: 2}
_VANISH = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout)


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
    """DriftAndNoises along the chain; ``dimensions`` says how what comes out so far lies: flat (0), or channels and 1 or 2 more."""

    def __init__(self, model: nn.Module, shape: Shape | None) -> None:
        self.chain = trace(model)
        self.names = {id(module): name for name, module in model.named_modules()}
        self.shape, self.flat = shape, False
        self.dimensions = _first_dimensions([module for _, module in self.chain], shape)
        self.steps: list[Step] = []
        self.width: int | None = None  # features or channels so far, where they are known
        held = sum(p.numel() for p in model.parameters())
        require_outputs(_outputs(self.chain), held)

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

    def _add(self, label: str, module: nn.Module) -> None:
        kind, name = type(module), self.names.get(id(module), type(module).__name__)
        if kind in _VANISH:
            return
        if (found := activation_of(module)) is not None:
            self._activate(label, *found)
        elif kind in _LINEAR:
            self._require(label, 0)
            self._append(_linear(name, module), module.in_features)  # type: ignore[arg-type]
        elif kind in _CONVS:
            self._require(label, _CONVS[kind])
            self._append(_conv(label, name, module, _CONVS[kind]), module.in_channels)  # type: ignore[arg-type]
        elif kind in POOLS:
            self._require(label, POOLS[kind])
            self.steps.append(pool_layer(label, name, module))
        elif kind in NORMS:
            self._require(label, *((0, 1) if NORMS[kind] is None else (NORMS[kind],)))
            norm = norm_layer(label, name, module, self.dimensions)  # type: ignore[arg-type]
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
        if self.dimensions in wanted:
            return
        takes = " or ".join(("(features)", "(channels, length)", "(channels, height, width)")[n] for n in wanted)
        given = ("(features)", "(channels, length)", "(channels, height, width)")[self.dimensions]
        reshape = ": put nn.Flatten() before it" if wanted == (0,) else ""
        raise NotAChain(f"{label} takes inputs of shape {takes}, it is given {given}{reshape}")

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
        for at in range(len(self.steps) - 2, -1, -1):
            step = self.steps[at]
            if isinstance(step, Layer) and self._is_norm(step) and step.activation == "linear":
                behind = fold_before(step, self.steps[at + 1])
                if behind is not None:
                    self.steps[at : at + 2] = [behind]

    def _is_norm(self, step: Layer) -> bool:
        return any(type(module) in NORMS and self.names.get(id(module)) == step.name for _, module in self.chain)


def _outputs(chain: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, int]]:
    found = []
    for label, module in chain:
        size = getattr(module, "out_features", getattr(module, "out_channels", None))
        if isinstance(size, int):
            found.append((label, size))
    return found


def _first_dimensions(modules: Sequence[nn.Module], shape: Shape | None) -> int:
    """Dimensions of the input beside its channels: 0, 1 or 2."""
    if shape is not None:
        if len(shape) > 3:
            raise ExportError(f"input_shape (={shape}) must have at most 3 sizes, without the batch")
        return len(shape) - 1
    for module in modules:
        kind = type(module)
        if isinstance(module, nn.Unflatten) or kind in _LINEAR:
            return 0
        known = _CONVS.get(kind) or POOLS.get(kind) or NORMS.get(kind)
        if known:
            return known
        if isinstance(module, nn.Flatten):
            return 0
    return 0


@torch.no_grad()
def _linear(name: str, linear: SparseLinear | nn.Linear) -> Layer:
    rows, columns, weights = _connections(name, linear, linear.in_features)
    bias = _bias(name, linear.bias)
    return Layer(name, linear.out_features, linear.in_features, rows, columns, weights, bias, "linear")


@torch.no_grad()
def _conv(label: str, name: str, conv: Any, dimensions: int) -> Conv:
    if conv.padding_mode != "zeros":
        raise NotAChain(f"{label} has padding_mode={conv.padding_mode!r}: only zeros can be written")
    window = settle_window(
        dimensions, conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation,
        conv.groups,
    )  # fmt: skip
    n_in = window.group_channels * math.prod(window.kernel)
    rows, columns, weights = _connections(name, conv, n_in)
    bias = _bias(name, conv.bias)
    return Conv(
        name, conv.out_channels, n_in, rows, columns, weights, bias, "linear", window=window, dimensions=dimensions
    )


def _connections(name: str, layer: Any, n_in: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and weights of the connections of a layer, sorted."""
    if isinstance(layer, SparseLayer):
        wiring = layer.wiring
        if wiring.theta.is_meta:
            raise _on_meta(name)
        index = wiring.layer_index(layer.part)
        code, theta = index.layer_packed_rows(), wiring.theta[index.start : index.end]
        weight = mapping.weights(theta, code)
        rows, values = rows_of(code).cpu().numpy(), weight.float().cpu().numpy()
        columns = np.repeat(np.arange(n_in), index.layer_colptr().diff().cpu().numpy())
        there = np.ones(len(rows), dtype=bool)
        if wiring.alive is not None:
            there &= wiring.alive[index.start : index.end].cpu().numpy()
        if wiring.sign_bound:
            there &= ~(theta < 0).cpu().numpy()  # dormant: it has no weight
        rows, columns, values = rows[there], columns[there], values[there]
        order = np.argsort(rows, kind="stable")  # columns already rise within a row
        rows, columns, values = rows[order], columns[order], values[order]
    else:
        if layer.weight.is_meta:
            raise _on_meta(name)
        values = layer.weight.float().cpu().numpy().reshape(-1)
        # Methods that store matrices in full leave zeros where no connection is.
        kept = np.flatnonzero(values)
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


def _on_meta(name: str) -> ExportError:
    return ExportError(f"layer {name!r} is on the meta device and has no weights: load them first")
