"""PyNN: lists of connections for ``FromListConnector`` and ``FromFileConnector``, excitatory and inhibitory apart.

PyNN gives a projection one receptor type, so each layer becomes two projections. A folder holds for layer n
``layer_n.excitatory.txt`` and ``layer_n.inhibitory.txt`` with columns i, j, weight, delay (i the input, j the output);
``network.json`` has the sizes of the populations, the biases and the activations.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from wirebound.export.layers import Conv, ExportError, Layer, Network, Pool
from wirebound.export.network import read_network
from wirebound.export.write import require_places, settle_place, write_folder

RECEPTORS = ("excitatory", "inhibitory")
LIST = "network.json"


@dataclass(frozen=True)
class Projection:
    """One projection between two populations that follow each other."""

    pre: int  # number of the population, the inputs are 0
    post: int
    receptor: str
    connections: list[tuple[int, int, float, float]]  # pre, post, weight, delay: what FromListConnector takes
    file: Path | None = None


def projections(
    model: nn.Module | Network,
    *,
    delay: float = 1.0,
    gain: float = 1.0,
    conductance: bool = False,
    input_shape: Sequence[int] | None = None,
) -> list[Projection]:
    """The connections of a chain of layers as PyNN wants them; the arguments are those of ``to_pynn``."""
    for name, value, unit in (("delay", delay, " ms"), ("gain", gain, "")):
        if not 0 < value < math.inf:
            raise ExportError(f"{name} (={value}) must be > 0{unit} and finite")
    found = []
    for number, layer in enumerate(_unrolled(read_network(model, input_shape))):
        negative = np.signbit(layer.weights)  # of a newborn too: its weight is -0
        for receptor, chosen in zip(RECEPTORS, (~negative, negative), strict=True):
            weights = layer.weights[chosen].astype(np.float64) * gain
            weights = np.abs(weights) if conductance or receptor == "excitatory" else weights
            rows, columns = layer.rows[chosen].tolist(), layer.columns[chosen].tolist()
            listed = [(i, j, w, delay) for i, j, w in zip(columns, rows, weights.tolist(), strict=True)]
            found.append(Projection(number, number + 1, receptor, listed))
    return found


def _unrolled(network: Network) -> list[Layer]:
    require_places(network, "PyNN")
    layers: list[Layer] = []
    for layer in network.layers:
        if isinstance(layer, Pool):
            raise ExportError(f"PyNN has no projection for pooling, which layer {layer.name!r} does: use a stride instead")
        layers.append(layer.unrolled() if isinstance(layer, Conv) else layer)
    return layers


def to_pynn(
    model: nn.Module | Network,
    folder: str | os.PathLike[str],
    *,
    delay: float = 1.0,
    gain: float = 1.0,
    conductance: bool = False,
    input_shape: Sequence[int] | None = None,
) -> list[Projection]:
    """Write the projections of a chain of layers into a folder; what was written is returned.

    Args:
        model: a chain of layers (``read_network``) without pooling; a convolution is written place by place.
        folder: where the files go.
        delay: delay of connections in ms.
        gain: weight in PyNN's unit, nA or µS, for a weight of 1.
        conductance: conductance-based synapses, whose inhibitory weights are positive, not negative.
        input_shape: of one example, without the batch, for models with convolutions.
    """
    place = settle_place(folder, folder=True)
    network = Network(tuple(_unrolled(read_network(model, input_shape))))
    written: list[Projection] = []

    def write(beside: Path) -> None:
        described = []
        for item in projections(network, delay=delay, gain=gain, conductance=conductance):
            name = f"layer_{item.pre}.{item.receptor}.txt"
            with open(beside / name, "w", encoding="ascii") as file:
                file.write('# columns = ["i", "j", "weight", "delay"]\n')
                file.writelines(f"{i}\t{j}\t{weight!r}\t{wait!r}\n" for i, j, weight, wait in item.connections)
            written.append(dataclasses.replace(item, file=place / name))
            about = {"file": name, "pre": item.pre, "post": item.post, "receptor": item.receptor}
            described.append({**about, "connections": len(item.connections)})
        layers = network.weighted
        text: dict[str, Any] = {
            "populations": network.sizes,
            "activations": [layer.activation for layer in layers],
            "bias": [None if layer.bias is None else (layer.bias.astype(float) * gain).tolist() for layer in layers],
            "projections": described,
        }
        (beside / LIST).write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")

    write_folder(place, write, LIST)
    return written


def read_projections(folder: str | os.PathLike[str]) -> list[Projection]:
    """The projections in such a folder. Unlike PyNN's own reader it also takes a file with a single connection.

    Only files of the folder itself are read: a name that leads out of it is an ``ExportError``.
    """
    place = Path(folder)
    try:
        described = json.loads(_inside(place, LIST).read_text(encoding="utf-8"))
        return [_read_projection(place, item) for item in described["projections"]]
    except ExportError:
        raise
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {str(error)[:160]}"
        raise ExportError(f"{place} does not hold projections as to_pynn writes them ({reason})") from error


def _read_projection(place: Path, item: dict[str, Any]) -> Projection:
    pre, post, receptor = item["pre"], item["post"], item["receptor"]
    if type(pre) is not int or type(post) is not int or receptor not in RECEPTORS:
        told = f"pre (={str(pre)[:20]}), post (={str(post)[:20]}) and receptor (={str(receptor)[:20]!r})"
        raise ExportError(f"{told} of a projection must be two whole numbers and one of {RECEPTORS}")
    file = _inside(place, item["file"])
    rows = [line.split("\t") for line in file.read_text(encoding="ascii").splitlines() if line[:1] != "#"]
    listed = [(int(i), int(j), float(weight), float(wait)) for i, j, weight, wait in rows]
    return Projection(pre, post, receptor, listed, file)


def _inside(place: Path, name: Any) -> Path:
    """The file of this name in the folder, if it is one: no path, and no link that leads elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or any(sign in name for sign in '/\\:\0'):
        raise ExportError(f"the file of a projection (={str(name)[:80]!r}) must be a name in its own folder, without a path")
    file = place / name
    if file.resolve().parent != place.resolve() or (file.exists() and not file.is_file()):
        raise ExportError(f"the file of a projection (={name[:80]!r}) must be a regular file in its own folder, not a link out of it")
    return file
