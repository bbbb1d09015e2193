"""C: one header with the network in it and a function that runs it. C99, no allocation, static buffers.

Weights are float, or int8 with one scale for each row or each layer. Activities are float: int8 needs no calibration
data, and a microcontroller spends its flash on weights, not on activities.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from wirebound.export.compact import SCALES, Compact, compact
from wirebound.export.errors import ExportError
from wirebound.export.network import Network, read_network

_C_TYPES = {"uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "int8": "int8_t", "float32": "float"}
_ACTIVATIONS = {
    "linear": "sum",
    "relu": "sum > 0.0f ? sum : 0.0f",
    "tanh": "tanhf(sum)",
    "sigmoid": "1.0f / (1.0f + expf(-sum))",
}
_MATHS = ("tanh", "sigmoid")


@dataclass(frozen=True)
class CHeader:
    """What was written, and what it costs on the device."""

    path: Path
    flash: int  # bytes of constants
    ram: int  # bytes of buffers, the outputs included
    connections: int  # that are stored, those of weight 0 left out
    stones: int  # stored stepping stones (compact.py)


def to_c(
    model: nn.Module | Network,
    path: str | os.PathLike[str],
    *,
    weights: str = "float",
    scales: str = "layer",
    name: str = "network",
    pixels: float | None = None,
) -> CHeader:
    """Write a plain stack as one C99 header.

    The header defines ``const float *NAME_run(const NAME_input *x)``, whose result is a static buffer with
    ``NAME_OUTPUTS`` numbers, and ``int NAME_predict(const NAME_input *x)``, the index of the largest. Include it in one
    C file; it is not reentrant, because its buffers are static.

    Args:
        model: a plain stack of linear layers with ReLU, tanh or sigmoid.
        path: the header.
        weights: ``"float"`` or ``"int8"``.
        scales: of int8 weights, one for each ``"row"`` or for each ``"layer"``.
        name: prefix of everything that the header defines.
        pixels: if given, inputs are bytes, and the network sees ``pixels * x``, such as 1/255 for images. Else floats.
    """
    if weights not in ("float", "int8"):
        raise ExportError(f"weights (={weights!r}) must be float or int8")
    if scales not in SCALES:
        raise ExportError(f"scales (={scales!r}) must be one of {SCALES}")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ExportError(f"name (={name!r}) must be a C identifier")
    network = read_network(model)
    layers = compact(network, 8 if weights == "int8" else 32, scales)
    front = max(layer.n_out for layer in network.layers[0::2])  # layers take turns with two buffers
    back = max((layer.n_out for layer in network.layers[1::2]), default=0)
    flash = sum(layer.flash for layer in layers)
    ram = 4 * (front + back)
    stored = sum(int(np.count_nonzero(layer.values)) for layer in layers)
    stones = sum(layer.values.size for layer in layers) - stored
    text = _header(name, network, layers, (front, back), flash, ram, stored, pixels)
    Path(path).write_text(text, encoding="ascii")
    return CHeader(Path(path), flash, ram, stored, stones)


def _header(
    name: str,
    network: Network,
    layers: list[Compact],
    buffers: tuple[int, int],
    flash: int,
    ram: int,
    stored: int,
    pixels: float | None,
) -> str:
    guard = f"{name.upper()}_H"
    sizes = "-".join(map(str, network.sizes))
    kind = "float" if layers[0].scale is None else "int8"
    maths = any(layer.activation in _MATHS for layer in network.layers)
    lines = [
        f"/* {sizes}, {stored} connections of {network.possible} possible, {kind} weights. Written by wirebound.",
        f" * {flash} bytes of constants, {ram} bytes of buffers. C99, no allocation, not reentrant. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        *(["#include <math.h>"] if maths else []),
        "",
        f"#define {name.upper()}_INPUTS {network.sizes[0]}",
        f"#define {name.upper()}_OUTPUTS {network.sizes[-1]}",
        f"#define {name.upper()}_FLASH_BYTES {flash}",
        f"#define {name.upper()}_RAM_BYTES {ram}",
        "",
        f"typedef {'float' if pixels is None else 'uint8_t'} {name}_input;",
        "",
    ]
    for number, layer in enumerate(layers):
        for what, array in _arrays(layer):
            lines.append(_constant(f"{name}_{number}_{what}", array))
    front, back = buffers
    lines += ["", f"static float {name}_front[{front}];"]
    lines += [f"static float {name}_back[{back}];"] if back else []
    for number, layer in enumerate(layers):
        lines += ["", *_layer_function(name, number, layer, pixels if number == 0 else None)]
    lines += ["", f"static inline const float *{name}_run(const {name}_input *x) {{"]
    given = "x"
    for number in range(len(layers)):
        target = f"{name}_{'front' if number % 2 == 0 else 'back'}"
        lines.append(f"  {name}_{number}({given}, {target});")
        given = target
    lines += [f"  return {given};", "}", ""]
    lines += [
        f"static inline int {name}_predict(const {name}_input *x) {{",
        f"  const float *y = {name}_run(x);",
        "  int best = 0, i;",
        f"  for (i = 1; i < {name.upper()}_OUTPUTS; i++)",
        "    if (y[i] > y[best]) best = i;",
        "  return best;",
        "}",
        "",
        f"#endif /* {guard} */",
        "",
    ]
    return "\n".join(lines)


def _arrays(layer: Compact) -> list[tuple[str, np.ndarray]]:
    named = [("counts", layer.counts), ("steps", layer.steps), ("weights", layer.values)]
    if layer.scale is not None and layer.scale.size > 1:
        named.append(("scale", layer.scale))
    if layer.layer.bias is not None:
        named.append(("bias", layer.layer.bias))
    return [(what, array) for what, array in named if array.size]


def _layer_function(name: str, number: int, layer: Compact, pixels: float | None) -> list[str]:
    """One layer: a row is a sum over its connections, whose columns come by steps."""
    prefix = f"{name}_{number}"
    source = f"{name}_input" if number == 0 else "float"
    total = "sum"
    if layer.scale is not None:
        total += f" * {_number(layer.scale[0])}" if layer.scale.size == 1 else f" * {prefix}_scale[row]"
    if pixels is not None:
        total += f" * {_number(np.float32(pixels))}"
    if layer.layer.bias is not None:
        total += f" + {prefix}_bias[row]"
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
        f"static inline void {prefix}(const {source} *x, float *y) {{",
        f"  {counters}",
        f"  for (row = 0; row < {layer.layer.n_out}; row++) {{",
        *(["    uint32_t column = 0, left;"] if layer.steps.size else []),
        "    float sum = 0.0f;",
        *walk,
        *([f"    sum = {total};"] if total != "sum" else []),
        f"    y[row] = {_ACTIVATIONS[layer.layer.activation]};",
        "  }",
        "}",
    ]


def _constant(name: str, array: np.ndarray) -> str:
    numbers = [_number(value) for value in array] if array.dtype == np.float32 else [str(int(v)) for v in array]
    lines, line = [], "  "
    for number in numbers:
        if len(line) + len(number) > 118:
            lines.append(line.rstrip())
            line = "  "
        line += f"{number}, "
    lines.append(line.rstrip(", "))
    return f"static const {_C_TYPES[str(array.dtype)]} {name}[{array.size}] = {{\n" + "\n".join(lines) + "\n};"


def _number(value: np.floating) -> str:
    text = f"{float(value):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
