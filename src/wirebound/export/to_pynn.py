"""PyNN: a folder with the connections of each layer, excitatory and inhibitory apart, and ``network.json``."""

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

from wirebound.export.layers import Conv, ExportError, Layer, Network, Pool, require
from wirebound.export.network import read_network
from wirebound.export.write import LIST, require_places, settle_place, write_folder

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
    model: nn.Module | Network, *, delay: float = 1.0, gain: float = 1.0, conductance: bool = False,
    input_shape: Sequence[int] | None = None
) -> list[Projection]:
    """The connections of a chain of layers as PyNN wants them; the arguments are those of ``to_pynn``."""
    for name, value, unit in (("delay", delay, " ms"), ("gain", gain, "")):
        require(0 < value < math.inf, f"{name} (={value}) must be > 0{unit} and finite")
    found = []
    for number, layer in enumerate(_unrolled(read_network(model, input_shape))):
        negative = np.signbit(layer.weights)  # of a newborn too: its weight is -0
        for receptor, chosen in zip(RECEPTORS, (~negative, negative), strict=True):
            weights = layer.weights[chosen].astype(np.float64) * gain
            weights = np.abs(weights) if conductance or receptor == "excitatory" else weights
            arrays = (layer.columns[chosen], layer.rows[chosen], weights)
            listed = [(*each, delay) for each in zip(*(array.tolist() for array in arrays), strict=True)]
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
    model: nn.Module | Network, folder: str | os.PathLike[str], *, delay: float = 1.0, gain: float = 1.0,
    conductance: bool = False, input_shape: Sequence[int] | None = None
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

    def write(beside: Path) -> dict[str, Any]:
        described = []
        for item in projections(network, delay=delay, gain=gain, conductance=conductance):
            name = f"layer_{item.pre}.{item.receptor}.txt"
            with open(beside / name, "w", encoding="ascii") as file:
                file.write('# columns = ["i", "j", "weight", "delay"]\n')
                file.writelines(f"{i}\t{j}\t{weight!r}\t{wait!r}\n" for i, j, weight, wait in item.connections)
            written.append(dataclasses.replace(item, file=place / name))
            about = {"file": name, "pre": item.pre, "post": item.post, "receptor": item.receptor}
            described.append({**about, "connections": len(item.connections)})
        layers, activations = network.weighted, [layer.activation for layer in network.weighted]
        bias = [None if layer.bias is None else (layer.bias.astype(float) * gain).tolist() for layer in layers]
        return {"populations": network.sizes, "activations": activations, "bias": bias, "projections": described}

    write_folder(place, write)
    return written


def read_projections(folder: str | os.PathLike[str]) -> list[Projection]:
    """The projections in such a folder, also from a file with a single connection; no file outside of it is read."""
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
    told = f"the file of a projection (={str(name)[:80]!r}) must be"
    plain = isinstance(name, str) and name not in ("", ".", "..") and not any(sign in name for sign in '/\\:\0')
    require(plain, f"{told} a name in its own folder, without a path")
    file = place / name
    inside = file.resolve().parent == place.resolve() and (file.is_file() or not file.exists())
    require(inside, f"{told} a regular file in its own folder, not a link out of it")
    return file
