"""The connections of a layer in few bytes: for each row how many, for each connection the step from the column before.

Steps are bytes, 16-bit or 32-bit numbers, whichever makes the layer smallest. A gap too wide for one step is walked in
several, with connections of weight 0 as stepping stones; a newborn, whose weight is 0, is omitted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirebound.export.layers import Layer, Network, Step

_STEPS = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, eq=False)
class Compact:
    """A layer as the C code reads it."""

    layer: Layer
    counts: np.ndarray  # of each row, stepping stones included
    steps: np.ndarray  # columns from the one before in the row; the first from column 0
    values: np.ndarray  # float32, or int8 in units of
    scale: np.ndarray | None  # float32, one for each row or one for all

    @property
    def flash(self) -> int:
        """Bytes of constants."""
        arrays = (self.counts, self.steps, self.values, self.scale, self.layer.bias)
        return sum(array.nbytes for array in arrays if array is not None)


def compact(network: Network, bits: int, scales: str) -> list[Compact]:
    """The layers of a network with weights of 8 bits (int8) or 32 (float)."""
    return [_compact_layer(layer, bits, scales) for layer in network.weighted]


def quantised(network: Network, scales: str) -> Network:
    """The network that the int8 code computes: the same connections with the rounded weights."""
    layers: list[Step] = []
    for layer in network.layers:
        if isinstance(layer, Layer):
            integers, scale = _quantise(layer, scales)
            weights = integers.astype(np.float32) * (scale[layer.rows] if scales == "row" else scale[0])
            layer = dataclasses.replace(layer, weights=weights)
        layers.append(layer)
    return dataclasses.replace(network, layers=tuple(layers))


def _quantise(layer: Layer, scales: str) -> tuple[np.ndarray, np.ndarray]:
    """int8 weights and the scale of each row, or of the layer: the largest weight becomes ±127."""
    largest = np.zeros(layer.n_out if scales == "row" else 1, dtype=np.float32)
    np.maximum.at(largest, layer.rows if scales == "row" else np.zeros_like(layer.rows), np.abs(layer.weights))
    scale = largest / np.float32(127)
    unit = scale[layer.rows] if scales == "row" else np.broadcast_to(scale, layer.weights.shape)
    ratio = np.divide(layer.weights, unit, out=np.zeros_like(layer.weights), where=unit > 0)
    return np.clip(np.rint(ratio), -127, 127).astype(np.int8), scale


def _compact_layer(layer: Layer, bits: int, scales: str) -> Compact:
    values, scale = (layer.weights, None) if bits == 32 else _quantise(layer, scales)
    kept = values != 0
    rows, columns, values = layer.rows[kept], layer.columns[kept], values[kept]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = rows[1:] != rows[:-1]
    gaps = columns.copy()
    gaps[1:] -= np.where(first[1:], 0, columns[:-1])
    # Counted before anything is made: the longest gaps in the smallest steps could take far more than the layer.
    kind: Any = min(_STEPS, key=lambda step: int((_stones(gaps, step) + 1).sum()) * (step().itemsize + values.itemsize))
    longest, stones = int(np.iinfo(kind).max), _stones(gaps, kind)
    at = np.cumsum(stones + 1) - 1
    total = int(at[-1]) + 1 if len(at) else 0
    steps: np.ndarray = np.full(total, longest, dtype=kind)
    steps[at] = (gaps - stones * longest).astype(kind)
    padded = np.zeros(total, dtype=values.dtype)
    padded[at] = values
    counts = np.bincount(rows, stones + 1, layer.n_out).astype(np.int64)
    most = int(counts.max(initial=0))
    width = np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.uint32
    return Compact(layer, counts.astype(width), steps, padded, scale)


def _stones(gaps: np.ndarray, kind: Any) -> np.ndarray:
    """Stepping stones before each connection, each of the longest step."""
    return np.maximum(gaps - 1, 0) // int(np.iinfo(kind).max)
