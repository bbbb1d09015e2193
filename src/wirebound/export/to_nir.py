"""NIR (Neuromorphic Intermediate Representation): weight nodes, and ReLU units as integrate-and-fire neurons.

An ``IF`` neuron with r = 1, threshold 1 and reset to 0 fires I times a unit of time for an input I > 0 and never
otherwise: its rate is ReLU(I), and inputs and outputs are currents, averaged over time. Weights are dense arrays, as the
format wants them; each weight node lists its K connections in its metadata (``row``, ``column``, ``weight``).
"""

import dataclasses
import io
import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from wirebound.export.layers import Conv, ExportError, Layer, Network, Pool, Step, load_extra, require
from wirebound.export.network import read_network
from wirebound.export.write import require_dense, require_places, settle_place, write_pieces


def to_nir(
    model: nn.Module | Network, path: str | os.PathLike[str], *, input_shape: Sequence[int] | None = None
) -> Path:
    """Write a chain of layers with ReLU between them as a NIR graph (HDF5).

    Args:
        model: a chain of layers (``read_network``), of linear layers, convolutions and means of windows.
        path: the file.
        input_shape: of one example, without the batch, for models with convolutions.
    """
    nir, place = load_extra("nir", "nir"), settle_place(path)
    network = read_network(model, input_shape)
    network = dataclasses.replace(network, layers=tuple(_one_group(layer) for layer in network.layers))
    require_places(network, "NIR")
    require_dense(network, "NIR", "SciPy, ONNX and C keep connections as they are")
    nodes: dict[str, Any] = {"input": nir.Input({"input": np.array(network.input_shape)})}
    reshapes = network.flat and isinstance(network.layers[0], Conv | Pool)
    require(not reshapes, "NIR cannot give flat inputs another shape: omit what reshapes them before the first layer")
    shape = network.input_shape
    for number, layer in enumerate(network.layers):
        if len(shape) > 1 and not isinstance(layer, Conv | Pool):
            nodes[f"flatten_{number}"] = nir.Flatten(input_type={"input": np.array(shape)}, start_dim=0)
        shape = layer.sized(shape)[1]
        nodes[f"layer_{number}"] = _weights(nir, layer) if isinstance(layer, Layer) else _mean(nir, layer)
        if layer.activation == "relu":
            numbers = (np.full(shape, value, dtype=np.float32) for value in (1, 1, 0))  # r, v_threshold, v_reset
            nodes[f"relu_{number}"] = nir.IF(*numbers, metadata={"activation": "relu"})
        elif layer.activation != "linear":
            raise _no_node(layer.activation, layer, "use ReLU, or write ONNX, C or SciPy")
    nodes["output"] = nir.Output({"output": np.array(shape)})
    about = {"writer": "wirebound", "code": "rate", "connections": network.connections, "possible": network.possible}
    graph = nir.NIRGraph(nodes=nodes, edges=list(itertools.pairwise(nodes)), metadata=about)
    file = io.BytesIO()
    nir.write(file, graph)
    write_pieces(place, [file.getvalue()])
    return place


def _no_node(what: str, layer: Step, way_out: str) -> ExportError:
    return ExportError(f"NIR has no node for {what}, which layer {layer.name!r} has: {way_out}")


def _weights(nir: Any, layer: Layer) -> Any:
    connections: dict[str, Any] = {"row": layer.rows.astype(np.int32), "column": layer.columns.astype(np.int32)}
    connections |= {"weight": layer.weights, "layer": layer.name}
    if isinstance(layer, Conv):
        return _conv(nir, layer, connections)
    if layer.bias is None:
        return nir.Linear(weight=layer.dense(), metadata=connections)
    return nir.Affine(weight=layer.dense(), bias=layer.bias, metadata=connections)


def _one_group(layer: Step) -> Step:
    """A convolution whose groups are one, with zeros between them: ``nir.read`` takes the groups' channels for all."""
    if not isinstance(layer, Conv) or layer.window.groups == 1:
        return layer
    window, places = layer.window, math.prod(layer.window.kernel)
    columns, n_in = layer.channels * places + layer.columns % places, window.in_channels * places
    return dataclasses.replace(layer, n_in=n_in, columns=columns, window=window._replace(groups=1))


def _conv(nir: Any, layer: Conv, connections: dict[str, Any]) -> Any:
    window, size = layer.window, layer.known_size
    total = [window.reach(axis) - 1 for axis in (0, 1)]
    same = window.stride == (1, 1) and [a + b for a, b in zip(window.before, window.after, strict=True)] == total
    padding: Any = "same" if same and any(total) else window.before
    if layer.dimensions == 2 and window.kernel[0] != window.kernel[1] and padding != "same":
        way_out = "nir takes kernels for squares unless padding is 'same'; use a square one, or write ONNX or C"
        raise _no_node(f"a kernel of {window.kernel[0]} × {window.kernel[1]}", layer, way_out)
    bias = np.zeros(layer.n_out, dtype=np.float32) if layer.bias is None else layer.bias
    weight = layer.dense().reshape(layer.kernel_shape)
    if layer.dimensions == 1:
        padding = padding if padding == "same" else padding[1]
        return nir.Conv1d(size[1], weight, window.stride[1], padding, window.dilation[1], 1, bias, metadata=connections)
    return nir.Conv2d(size, weight, window.stride, padding, window.dilation, 1, bias, metadata=connections)


def _mean(nir: Any, pool: Pool) -> Any:
    window = pool.known_window
    if pool.kind != "mean" or pool.dimensions != 2:
        what = "the largest of a window" if pool.kind != "mean" else "means in one dimension"
        raise _no_node(what, pool, "use nn.AvgPool2d, or write ONNX or C")
    if not pool.count_padding and any(window.before):
        raise _no_node("count_include_pad=False", pool, "use padding=0, or write ONNX or C")
    assert math.prod(window.dilation) == 1
    return nir.AvgPool2d(*(np.array(item) for item in (window.kernel, window.stride, window.before)))
