"""PyNN: lists of connections for ``FromListConnector`` and ``FromFileConnector``, excitatory and inhibitory apart.

PyNN gives a projection one receptor type, so each layer becomes two projections. A folder holds for layer n
``layer_n.excitatory.txt`` and ``layer_n.inhibitory.txt`` with columns i, j, weight, delay (i the input, j the output);
``network.json`` has the sizes of the populations, the biases and the activations.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from wirebound.export.errors import ExportError
from wirebound.export.network import Network, read_network

RECEPTORS = ("excitatory", "inhibitory")


@dataclass(frozen=True)
class Projection:
    """One projection between two populations that follow each other."""

    pre: int  # number of the population, the inputs are 0
    post: int
    receptor: str
    connections: list[tuple[int, int, float, float]]  # pre, post, weight, delay: what FromListConnector takes
    file: Path | None = None


def projections(
    model: nn.Module | Network, *, delay: float = 1.0, gain: float = 1.0, conductance: bool = False
) -> list[Projection]:
    """The connections of a plain stack as PyNN wants them.

    Args:
        model: a plain stack.
        delay: of every connection, in ms.
        gain: weight in PyNN's unit (nA, or µS) for a weight of 1.
        conductance: synapses are conductance-based: weights of inhibitory connections are then positive, where
            current-based synapses, the default, want them negative.
    """
    found = []
    for number, layer in enumerate(read_network(model).layers):
        negative = np.signbit(layer.weights)  # of a newborn too: its weight is -0
        for receptor, chosen in zip(RECEPTORS, (~negative, negative), strict=True):
            weights = layer.weights[chosen].astype(np.float64) * gain
            weights = np.abs(weights) if conductance or receptor == "excitatory" else weights
            rows, columns = layer.rows[chosen].tolist(), layer.columns[chosen].tolist()
            listed = [(i, j, w, delay) for i, j, w in zip(columns, rows, weights.tolist(), strict=True)]
            found.append(Projection(number, number + 1, receptor, listed))
    return found


def to_pynn(
    model: nn.Module | Network,
    folder: str | os.PathLike[str],
    *,
    delay: float = 1.0,
    gain: float = 1.0,
    conductance: bool = False,
) -> list[Projection]:
    """Write the projections of a plain stack into a folder, see ``projections``; what was written is returned."""
    if not delay > 0:
        raise ExportError(f"delay (={delay}) must be > 0 ms")
    if not gain > 0:
        raise ExportError(f"gain (={gain}) must be > 0")
    network = read_network(model)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    written, described = [], []
    for item in projections(network, delay=delay, gain=gain, conductance=conductance):
        file = place / f"layer_{item.pre}.{item.receptor}.txt"
        lines = ['# columns = ["i", "j", "weight", "delay"]']
        lines += [f"{i}\t{j}\t{weight!r}\t{wait!r}" for i, j, weight, wait in item.connections]
        file.write_text("\n".join(lines) + "\n", encoding="ascii")
        written.append(Projection(item.pre, item.post, item.receptor, item.connections, file))
        described.append({"file": file.name, "pre": item.pre, "post": item.post, "receptor": item.receptor,
                          "connections": len(item.connections)})  # fmt: skip
    text: dict[str, Any] = {
        "populations": network.sizes,
        "activations": [layer.activation for layer in network.layers],
        "bias": [None if layer.bias is None else (layer.bias.astype(float) * gain).tolist() for layer in network.layers],
        "projections": described,
    }
    (place / "network.json").write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")
    return written


def read_projections(folder: str | os.PathLike[str]) -> list[Projection]:
    """The projections in such a folder. Unlike PyNN's own reader it also takes a file with a single connection."""
    place = Path(folder)
    found = []
    for item in json.loads((place / "network.json").read_text(encoding="utf-8"))["projections"]:
        file = place / item["file"]
        rows = [line.split("\t") for line in file.read_text(encoding="ascii").splitlines() if line[:1] != "#"]
        listed = [(int(i), int(j), float(weight), float(wait)) for i, j, weight, wait in rows]
        found.append(Projection(item["pre"], item["post"], item["receptor"], listed, file))
    return found
