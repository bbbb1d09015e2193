"""NIR (Neuromorphic Intermediate Representation): Linear and Affine nodes, ReLU units as integrate-and-fire neurons.

NIR describes spiking networks and has no ReLU. An ``IF`` neuron with r = 1, threshold 1 and reset to 0 integrates its
input I and fires I times a unit of time if I > 0 and never otherwise: its rate is ReLU(I). So the graph is the
network in rate code: inputs and outputs are currents, averaged over time. NIR has no node for tanh and sigmoid.

Weights are dense arrays, as the format wants them, compressed in the file; each weight node lists its connections in
its metadata (``row``, ``column``, ``weight``), so that a simulator can have the K of them alone.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from wirebound.export.errors import ExportError, require
from wirebound.export.network import Layer, Network, read_network


def to_nir(model: nn.Module | Network, path: str | os.PathLike[str]) -> Path:
    """Write a plain stack of linear layers with ReLU between them as a NIR graph (HDF5)."""
    nir = require("nir", "nir")
    network = read_network(model)
    nodes: dict[str, Any] = {"input": nir.Input(input_type={"input": np.array([network.sizes[0]])})}
    for number, layer in enumerate(network.layers):
        nodes[f"layer_{number}"] = _weights(nir, layer)
        if layer.activation == "relu":
            ones = np.ones(layer.n_out, dtype=np.float32)
            activation = {"activation": "relu"}
            nodes[f"relu_{number}"] = nir.IF(
                r=ones, v_threshold=ones.copy(), v_reset=np.zeros_like(ones), metadata=activation
            )
        elif layer.activation != "linear":
            raise ExportError(f"NIR has no node for {layer.activation}, the activation of layer {layer.name!r}: use ReLU")
    nodes["output"] = nir.Output(output_type={"output": np.array([network.sizes[-1]])})
    names = list(nodes)
    about = {"writer": "wirebound", "code": "rate", "connections": network.connections, "possible": network.possible}
    graph = nir.NIRGraph(nodes=nodes, edges=list(itertools.pairwise(names)), metadata=about)
    nir.write(os.fspath(path), graph)
    return Path(path)


def _weights(nir: Any, layer: Layer) -> Any:
    connections = {
        "row": layer.rows.astype(np.int32),
        "column": layer.columns.astype(np.int32),
        "weight": layer.weights,
        "layer": layer.name,
    }
    if layer.bias is None:
        return nir.Linear(weight=layer.dense(), metadata=connections)
    return nir.Affine(weight=layer.dense(), bias=layer.bias, metadata=connections)
