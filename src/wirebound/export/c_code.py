"""The C of each kind of layer: a function from one array of floats to another."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from wirebound.export.activation import ACTIVATIONS, OF_ALL
from wirebound.export.compact import Compact
from wirebound.export.layers import Conv, Layer, Pool, Step

_C_TYPES = {"uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "int8": "int8_t", "float32": "float"}
_PIECE = 1 << 14  # numbers of a table that are texts at the same time


def uses_maths(layer: Step) -> bool:
    """Whether the code of a layer needs math.h."""
    return layer.activation not in ("linear", "relu", "relu6", "leaky-relu")


def layer_function(prefix: str, source: str, layer: Step, packed: Compact | None, pixels: float | None) -> list[str]:
    """``static inline void PREFIX(const SOURCE *x, float *y)``; ``packed`` are the connections, if there are any."""
    if isinstance(layer, Pool):
        body = _pool(layer, pixels)
    elif isinstance(layer, Conv):
        assert packed is not None
        body = _conv(prefix, source, layer, packed, pixels)
    else:
        assert packed is not None
        body = _linear(prefix, packed, pixels)
    return [f"static inline void {prefix}(const {source} *x, float *y) {{", *body, "}"]


def _linear(prefix: str, layer: Compact, pixels: float | None) -> list[str]:
    """A row is a sum over its connections, whose columns come by steps."""
    walk = [
        f"    for (left = {prefix}_counts[row]; left > 0; left--, k++) {{",
        f"      column += {prefix}_steps[k];",
        f"      sum += (float){prefix}_weights[k] * (float)x[column];",
        "    }",
    ]
    if not layer.steps.size:
        walk = ["    (void)x; /* no connection */"]
    counters = "uint32_t row, k = 0;" if layer.steps.size else "uint32_t row;"
    return [
        f"  {counters}",
        f"  for (row = 0; row < {layer.layer.n_out}; row++) {{",
        *(["    uint32_t column = 0, left;"] if layer.steps.size else []),
        "    float sum = 0.0f;",
        *walk,
        *_finish(prefix, layer, pixels, "    "),
        f"    y[row] = {_activation(layer.layer)};",
        "  }",
        *_of_all(layer.layer),
    ]


def _conv(prefix: str, source: str, conv: Conv, layer: Compact, pixels: float | None) -> list[str]:
    """Each connection adds its weight times a shifted image of its input channel to the image of its output channel."""
    window, (height, width), (out_height, out_width) = conv.window, conv.known_size, conv.out_size
    places, per_group = math.prod(window.kernel), conv.n_out // window.groups
    group = f" + row / {per_group} * {window.group_channels}" if window.groups > 1 else ""
    walk = [
        f"    for (left = {prefix}_counts[row]; left > 0; left--, k++) {{",
        "      int32_t oy, ox, top, start;",
        "      const float weight = (float)" + f"{prefix}_weights[k];",
        f"      column += {prefix}_steps[k];",
        f"      image = x + (column / {places}{group}) * {height * width};",
        f"      top = (int32_t)(column % {places} / {window.kernel[1]}) * {window.dilation[0]} - {window.before[0]};",
        f"      start = (int32_t)(column % {window.kernel[1]}) * {window.dilation[1]} - {window.before[1]};",
        f"      for (oy = 0; oy < {out_height}; oy++) {{",
        f"        const int32_t iy = top + oy * {window.stride[0]};",
        f"        if (iy < 0 || iy >= {height}) continue;",
        f"        for (ox = 0; ox < {out_width}; ox++) {{",
        f"          const int32_t ix = start + ox * {window.stride[1]};",
        f"          if (ix >= 0 && ix < {width})",
        f"            y[oy * {out_width} + ox] += weight * (float)image[iy * {width} + ix];",
        "        }",
        "      }",
        "    }",
    ]
    empty = not layer.steps.size
    return [
        "  uint32_t row, place;" if empty else "  uint32_t row, place, k = 0;",
        *(["  (void)x; /* no connection */"] if empty else []),
        f"  for (row = 0; row < {conv.n_out}; row++, y += {out_height * out_width}) {{",
        *([] if empty else ["    uint32_t column = 0, left;", f"    const {source} *image;"]),
        f"    for (place = 0; place < {out_height * out_width}; place++) y[place] = 0.0f;",
        *([] if empty else walk),
        f"    for (place = 0; place < {out_height * out_width}; place++) {{",
        "      float sum = y[place];",
        *_finish(prefix, layer, pixels, "      "),
        f"      y[place] = {_activation(conv)};",
        "    }",
        "  }",
    ]


def _pool(pool: Pool, pixels: float | None) -> list[str]:
    window, (height, width), (out_height, out_width) = pool.known_window, pool.known_size, pool.out_size
    seen = f"(float)x[iy * {width} + ix]" + ("" if pixels is None else f" * {number(np.float32(pixels))}")
    outside = f"iy < 0 || iy >= {height} || ix < 0 || ix >= {width}"
    mean = pool.kind == "mean"
    counts = not mean or not pool.count_padding  # else each window counts as many places
    if mean:
        step = [
            f"          if ({outside}) continue;",
            f"          sum += {seen};",
            *(["          count++;"] if counts else []),
        ]
    else:
        step = [
            f"          if ({outside}) continue;",
            f"          if (!count || {seen} > sum) sum = {seen};",
            "          count = 1;",
        ]
    divisor = "(float)count" if counts else f"{math.prod(window.kernel)}.0f"
    return [
        "  int32_t channel, oy, ox, ky, kx;",
        f"  for (channel = 0; channel < {pool.channels}; channel++, x += {height * width})",
        f"    for (oy = 0; oy < {out_height}; oy++)",
        f"      for (ox = 0; ox < {out_width}; ox++) {{",
        "        float sum = 0.0f;",
        *(["        int32_t count = 0;"] if counts else []),
        f"        for (ky = 0; ky < {window.kernel[0]}; ky++) for (kx = 0; kx < {window.kernel[1]}; kx++) {{",
        f"          const int32_t iy = oy * {window.stride[0]} + ky * {window.dilation[0]} - {window.before[0]};",
        f"          const int32_t ix = ox * {window.stride[1]} + kx * {window.dilation[1]} - {window.before[1]};",
        *step,
        "        }",
        *([f"        sum /= {divisor};"] if mean else []),
        f"        *y++ = {_activation(pool)};",
        "      }",
    ]


def _finish(prefix: str, layer: Compact, pixels: float | None, indent: str) -> list[str]:
    """Scale and bias of a row."""
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


def _of_all(layer: Layer) -> list[str]:
    """An activation that needs all outputs before it can give the first."""
    if layer.activation not in OF_ALL:
        return []
    each = f"    for (i = 0; i < {layer.n_out}; i++)"
    return [
        "  {",
        "    float most = y[0], total = 0.0f;",
        "    uint32_t i;",
        f"{each} most = y[i] > most ? y[i] : most;",
        f"{each} total += expf(y[i] - most);",
        f"{each} y[i] = {ACTIVATIONS[layer.activation].c};",
        "  }",
    ]


def tables(prefix: str, layer: Compact) -> Iterator[str]:
    """The constants of a layer."""
    named = [("counts", layer.counts), ("steps", layer.steps), ("weights", layer.values)]
    if layer.scale is not None and layer.scale.size > 1:
        named.append(("scale", layer.scale))
    if layer.layer.bias is not None:
        named.append(("bias", layer.layer.bias))
    for what, array in named:
        if array.size:
            yield from _table(f"{prefix}_{what}", array)


def _table(name: str, array: np.ndarray) -> Iterator[str]:
    yield f"static const {_C_TYPES[str(array.dtype)]} {name}[{array.size}] = {{"
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
