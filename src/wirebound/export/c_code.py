"""The C of each kind of layer: a function from one array of floats to another, and its connections in few bytes.

For each row how many, for each connection the step from the column before. Steps are bytes, 16-bit or 32-bit numbers,
whichever makes the layer smallest. A gap too wide for one step is walked in several, with connections of weight 0 as
stepping stones; a newborn, whose weight is 0, is omitted.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wirebound.export.layers import ACTIVATIONS, OF_ALL, Conv, Layer, Network, Pool, Step

_C_TYPES = {"uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "int8": "int8_t", "float32": "float"}
_PIECE = 1 << 14  # numbers of a table that are texts at the same time
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

    def rounded(layer: Step) -> Step:
        if not isinstance(layer, Layer):
            return layer
        integers, scale = _quantise(layer, scales)
        return replace(layer, weights=integers.astype(np.float32) * (scale[layer.rows] if scales == "row" else scale[0]))

    return replace(network, layers=tuple(map(rounded, network.layers)))


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
    total = int(at[-1]) + 1 if len(at) else 1  # C has no empty arrays
    steps: np.ndarray = np.full(total, longest, dtype=kind)
    steps[at] = (gaps - stones * longest).astype(kind)
    padded = np.zeros(total, dtype=values.dtype)
    padded[at] = values
    counts = np.bincount(rows, stones + 1, layer.n_out).astype(np.int64)
    return Compact(layer, counts.astype(np.min_scalar_type(counts.max(initial=0))), steps, padded, scale)


def _stones(gaps: np.ndarray, kind: Any) -> np.ndarray:
    return np.maximum(gaps - 1, 0) // int(np.iinfo(kind).max)


def layer_function(prefix: str, source: str, layer: Step, packed: Compact | None, pixels: float | None) -> list[str]:
    """``static inline void PREFIX(const SOURCE *x, float *y)``; ``packed`` are the connections, if there are any."""
    if isinstance(layer, Pool):
        body = _pool(layer, pixels)
    else:
        assert packed is not None
        body = _conv(prefix, source, layer, packed, pixels) if isinstance(layer, Conv) else _linear(prefix, packed, pixels)
    return [f"static inline void {prefix}(const {source} *x, float *y) {{", *body, "}"]


def _linear(prefix: str, packed: Compact, pixels: float | None) -> list[str]:
    """A row is a sum over its connections, whose columns come by steps."""
    layer = packed.layer
    lines = [
        "  uint32_t row, k = 0;",
        f"  for (row = 0; row < {layer.n_out}; row++) {{",
        "    uint32_t column = 0, left;",
        "    float sum = 0.0f;",
        f"    for (left = {prefix}_counts[row]; left > 0; left--, k++) {{",
        f"      column += {prefix}_steps[k];",
        f"      sum += (float){prefix}_weights[k] * (float)x[column];",
        "    }",
        *_finish(prefix, packed, pixels, "    "),
        f"    y[row] = {_activation(layer)};",
        "  }",
    ]
    if layer.activation in OF_ALL:  # which need all outputs before they can give the first
        each = f"    for (i = 0; i < {layer.n_out}; i++)"
        lines += [
            "  {",
            "    float most = y[0], total = 0.0f;",
            "    uint32_t i;",
            f"{each} most = y[i] > most ? y[i] : most;",
            f"{each} total += expf(y[i] - most);",
            f"{each} y[i] = {ACTIVATIONS[layer.activation].c};",
            "  }",
        ]
    return lines


def _conv(prefix: str, source: str, conv: Conv, packed: Compact, pixels: float | None) -> list[str]:
    """Each connection adds its weight times a shifted image of its input channel to the image of its output channel."""
    window, (height, width), (out_height, out_width) = conv.window, conv.known_size, conv.out_size
    places, per_group, outputs = math.prod(window.kernel), conv.n_out // window.groups, out_height * out_width
    group = f" + row / {per_group} * {window.group_channels}" if window.groups > 1 else ""
    return [
        "  uint32_t row, place, k = 0;",
        f"  for (row = 0; row < {conv.n_out}; row++, y += {outputs}) {{",
        "    uint32_t column = 0, left;",
        f"    const {source} *image;",
        f"    for (place = 0; place < {outputs}; place++) y[place] = 0.0f;",
        f"    for (left = {prefix}_counts[row]; left > 0; left--, k++) {{",
        "      int32_t oy, ox, top, start;",
        f"      const float weight = (float){prefix}_weights[k];",
        f"      column += {prefix}_steps[k];",
        f"      image = x + (column / {places}{group}) * {height * width};",
        f"      top = (int32_t)(column % {places} / {window.kernel[1]}) * {window.dilation[0]} - {window.before[0]};",
        f"      start = (int32_t)(column % {window.kernel[1]}) * {window.dilation[1]} - {window.before[1]};",
        f"      for (oy = 0; oy < {out_height}; oy++) {{",
        f"        const int32_t iy = top + oy * {window.stride[0]};",
        f"        if (iy < 0 || iy >= {height}) continue;",
        f"        for (ox = 0; ox < {out_width}; ox++) {{",
        f"          const int32_t ix = start + ox * {window.stride[1]};",
        f"          if (ix >= 0 && ix < {width}) y[oy * {out_width} + ox] += weight * (float)image[iy * {width} + ix];",
        "        }",
        "      }",
        "    }",
        f"    for (place = 0; place < {outputs}; place++) {{",
        "      float sum = y[place];",
        *_finish(prefix, packed, pixels, "      "),
        f"      y[place] = {_activation(conv)};",
        "    }",
        "  }",
    ]


def _pool(pool: Pool, pixels: float | None) -> list[str]:
    window, (height, width), (out_height, out_width) = pool.known_window, pool.known_size, pool.out_size
    seen = f"(float)x[iy * {width} + ix]" + ("" if pixels is None else f" * {number(np.float32(pixels))}")
    # ``count`` are the places of the window inside the image; a mean may divide by all of them.
    divisor = f"{math.prod(window.kernel)}.0f" if pool.count_padding else "(float)count"
    step = f"sum += {seen};" if pool.kind == "mean" else f"if (!count || {seen} > sum) sum = {seen};"
    return [
        "  int32_t channel, oy, ox, ky, kx;",
        f"  for (channel = 0; channel < {pool.channels}; channel++, x += {height * width})",
        f"    for (oy = 0; oy < {out_height}; oy++)",
        f"      for (ox = 0; ox < {out_width}; ox++) {{",
        "        float sum = 0.0f;",
        "        int32_t count = 0;",
        f"        for (ky = 0; ky < {window.kernel[0]}; ky++) for (kx = 0; kx < {window.kernel[1]}; kx++) {{",
        f"          const int32_t iy = oy * {window.stride[0]} + ky * {window.dilation[0]} - {window.before[0]};",
        f"          const int32_t ix = ox * {window.stride[1]} + kx * {window.dilation[1]} - {window.before[1]};",
        f"          if (iy < 0 || iy >= {height} || ix < 0 || ix >= {width}) continue;",
        f"          {step}",
        "          count++;",
        "        }",
        f"        (void)count;{f' sum /= {divisor};' if pool.kind == 'mean' else ''}",
        f"        *y++ = {_activation(pool)};",
        "      }",
    ]


def _finish(prefix: str, layer: Compact, pixels: float | None, indent: str) -> list[str]:
    total = "sum"
    if layer.scale is not None:
        total += f" * {number(layer.scale[0])}" if layer.scale.size == 1 else f" * {prefix}_scale[row]"
    if pixels is not None:
        total += f" * {number(np.float32(pixels))}"
    if layer.layer.bias is not None:
        total += f" + {prefix}_bias[row]"
    return [f"{indent}sum = {total};"] if total != "sum" else []


def _activation(layer: Step) -> str:
    if layer.activation in OF_ALL:
        return "sum"
    return ACTIVATIONS[layer.activation].c.format(alpha=number(np.float32(layer.alpha)))


def tables(prefix: str, layer: Compact) -> Iterator[str]:
    named = [("counts", layer.counts), ("steps", layer.steps), ("weights", layer.values)]
    if layer.scale is not None and layer.scale.size > 1:
        named.append(("scale", layer.scale))
    if layer.layer.bias is not None:
        named.append(("bias", layer.layer.bias))
    for what, array in named:
        yield f"static const {_C_TYPES[str(array.dtype)]} {prefix}_{what}[{array.size}] = {{"
        for start in range(0, array.size, _PIECE):
            piece = array[start : start + _PIECE]
            texts = [number(value) for value in piece] if array.dtype == np.float32 else [str(int(v)) for v in piece]
            line = "  "
            for text in texts:
                if len(line) + len(text) > 118:
                    yield line.rstrip()
                    line = "  "
                line += f"{text}, "
            yield line.rstrip() if start + _PIECE < array.size else line.rstrip(", ")
        yield "};"


def number(value: np.floating) -> str:
    text = f"{float(value):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
