"""C: one C99 header with the network and a function that runs it; weights are float or int8, activities float."""

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from wirebound.export.c_code import Compact, compact, layer_function, tables
from wirebound.export.layers import Network, require
from wirebound.export.network import read_network
from wirebound.export.write import require_places, settle_place, write_pieces

CHOICES = {"weights": ("float", "int8"), "scales": ("row", "layer")}


@dataclass(frozen=True)
class CHeader:
    """What was written, and what it costs on the device."""

    path: Path
    flash: int  # bytes of constants
    ram: int  # bytes of buffers, the outputs included
    connections: int  # that are stored, those of weight 0 left out
    stones: int  # stored stepping stones (c_code.py)


def to_c(
    model: nn.Module | Network, path: str | os.PathLike[str], *, weights: str = "float", scales: str = "layer",
    name: str = "network", pixels: float | None = None, input_shape: Sequence[int] | None = None
) -> CHeader:
    """Write a model that is a chain of layers as one C99 header.

    The header defines ``const float *NAME_run(const NAME_input *x)``, which returns a static buffer of ``NAME_OUTPUTS``
    numbers, and ``int NAME_predict(const NAME_input *x)``, the index of the largest. It is not reentrant.

    Args:
        model: a chain of layers (``read_network``).
        path: the header.
        weights: kind of weights, float or int8.
        scales: int8 scale for each row or layer.
        name: prefix of what the header defines.
        pixels: if given, inputs are bytes, and the network sees ``pixels * x``, such as 1/255 for images. Else floats.
        input_shape: of one example, without the batch, for models with convolutions; numbers come in torch's order.
    """
    for setting, value in (("weights", weights), ("scales", scales)):
        require(value in CHOICES[setting], f"{setting} (={value!r}) must be one of {CHOICES[setting]}")
    require(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name), f"name (={name!r}) must be a C identifier")
    require(pixels is None or math.isfinite(np.float32(pixels)), f"pixels (={pixels}) must be a finite number")
    place = settle_place(path)
    network = read_network(model, input_shape)
    require_places(network, "a C program")
    packed = compact(network, 8 if weights == "int8" else 32, scales)
    sizes = network.sizes[1:]
    front, back = max(sizes[0::2]), max(sizes[1::2], default=0)  # layers take turns with two buffers
    stored = sum(int(np.count_nonzero(layer.values)) for layer in packed)
    stones = sum(layer.values.size for layer in packed) - stored
    made = CHeader(place, sum(layer.flash for layer in packed), 4 * (front + back), stored, stones)
    lines = _header(name, network, packed, (front, back), made, pixels, weights)
    write_pieces(place, (f"{line}\n".encode("ascii") for line in lines))
    return made


def _header(
    name: str, network: Network, packed: list[Compact], buffers: tuple[int, int], made: CHeader, pixels: float | None, kind: str
) -> Iterator[str]:
    guard, sizes = f"{name.upper()}_H", network.sizes
    defined = {"INPUTS": sizes[0], "OUTPUTS": sizes[-1], "FLASH_BYTES": made.flash, "RAM_BYTES": made.ram}
    maths = any(layer.activation not in ("linear", "relu", "relu6", "leaky-relu") for layer in network.layers)
    shape, held = "-".join(map(str, sizes)), f"{made.connections} connections of {network.possible} possible"
    yield from (
        f"/* {shape}, {held}, {kind} weights. Written by wirebound.",
        f" * {made.flash} bytes of constants, {made.ram} bytes of buffers. C99, no allocation, not reentrant. */",
        *(f"#ifndef {guard}", f"#define {guard}", "", "#include <stdint.h>", *(["#include <math.h>"] if maths else []), ""),
        *(f"#define {name.upper()}_{what} {size}" for what, size in defined.items()),
        "",
        f"typedef {'float' if pixels is None else 'uint8_t'} {name}_input;",
        "",
    )
    connections = {id(layer.layer): layer for layer in packed}
    for number, layer in enumerate(network.layers):
        if id(layer) in connections:
            yield from tables(f"{name}_{number}", connections[id(layer)])
    front, back = buffers
    yield from ("", f"static float {name}_front[{front}];", *([f"static float {name}_back[{back}];"] if back else []))
    for number, layer in enumerate(network.layers):
        source, unit = (f"{name}_input", pixels) if number == 0 else ("float", None)
        yield ""
        yield from layer_function(f"{name}_{number}", source, layer, connections.get(id(layer)), unit)
    yield from ("", f"static inline const float *{name}_run(const {name}_input *x) {{")
    given = "x"
    for number in range(len(network.layers)):
        target = f"{name}_{'front' if number % 2 == 0 else 'back'}"
        yield f"  {name}_{number}({given}, {target});"
        given = target
    yield from (
        f"  return {given};",
        "}",
        "",
        f"static inline int {name}_predict(const {name}_input *x) {{",
        f"  const float *y = {name}_run(x);",
        "  int best = 0, i;",
        f"  for (i = 1; i < {name.upper()}_OUTPUTS; i++)",
        "    if (y[i] > y[best]) best = i;",
        "  return best;",
        "}",
        "",
        f"#endif /* {guard} */",
    )
