"""ONNX: a chain of layers with sparse initialisers, in O(K) bytes; any other model through torch's own exporter."""

import io
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from wirebound.export.layers import ACTIVATIONS, Conv, ExportError, Layer, Network, NotAChain, Pool, load_extra, require
from wirebound.export.network import read_network
from wirebound.export.write import require_dense, settle_place, write_pieces
from wirebound.nn.sparsify import to_dense
from wirebound.ops import ConvWindow

OPSET, IR_VERSION = 17, 8  # old enough for every runtime of the last years


def to_onnx(
    model: nn.Module | Network, path: str | os.PathLike[str], *, dense: bool = False, softmax: bool = False,
    example: Tensor | None = None, input_shape: Sequence[int] | None = None
) -> Path:
    """Write a model whose input ``x`` is [batch, features] or [batch, channels, ...] and whose output is ``y``.

    Args:
        model: a chain of layers (``read_network``); or any other model, if there is an example.
        path: the file.
        dense: dense matrices instead of sparse ones.
        softmax: outputs are probabilities instead of what the last layer gives.
        example: a batch of inputs, with which torch traces a model that is no chain, after ``wb.to_dense``.
        input_shape: of one example, without the batch: the file then takes inputs of this height and width only.
    """
    onnx, place = load_extra("onnx", "onnx"), settle_place(path)
    try:
        network = read_network(model, input_shape)
    except NotAChain as error:
        if example is None or not isinstance(model, nn.Module):
            raise
        content = _traced(onnx, model, example, softmax, error.reason)
    else:
        if dense:
            require_dense(network, "ONNX with dense=True", "leave dense out")
        content = _Graph(onnx, network, dense).finish(softmax)
    write_pieces(place, [content])
    return place


class _Graph:
    """Nodes one after another; the last tensor is called ``y``."""

    def __init__(self, onnx: Any, network: Network, dense: bool) -> None:
        self.onnx, self.network, self.dense = onnx, network, dense
        self.nodes, self.initializers, self.sparse, self.at = list[Any](), list[Any](), list[Any](), "x"

    def finish(self, softmax: bool) -> bytes:
        network, first, last, helper = self.network, self.network.layers[0], self.network.layers[-1], self.onnx.helper
        channels = isinstance(first, Conv | Pool) or (network.shape is not None and len(network.shape) > 1)
        given: list[int | str] = ["batch", "channels"]
        if network.flat:
            given[1:] = [math.prod(network.input_shape)]
        elif network.shape is not None:
            given[1:] = network.shape
        elif isinstance(first, Conv | Pool):
            given[1:] = [first.window.in_channels if isinstance(first, Conv) else "channels", *_of(first, ["height", "width"])]
        if network.flat and channels:
            self._constant("shape", np.array([-1, *network.input_shape], dtype=np.int64))
            self._node("Reshape", "shaped", ["x", "shape"])
        for number, layer in enumerate(network.layers):
            spatial = isinstance(layer, Conv | Pool)
            if channels and not spatial:
                self._node("Flatten", f"layer_{number}.flatten", [self.at], axis=1)
            channels = spatial
            self._layer(f"layer_{number}", layer)
        if softmax and last.activation != "softmax":
            require(not channels, "softmax needs a last layer that is linear, this one is not")
            self._node("Softmax", "softmax", [self.at], axis=1)
        self.nodes[-1].output[0] = "y"
        out: list[int | str] = ["batch", last.n_out] if isinstance(last, Layer) else ["batch", "channels"]
        if isinstance(last, Conv | Pool):
            out += _of(last, ["out_height", "out_width"])
        kind = self.onnx.TensorProto.FLOAT
        x, y = (helper.make_tensor_value_info(name, kind, sizes) for name, sizes in (("x", given), ("y", out)))
        tables = {"initializer": self.initializers, "sparse_initializer": self.sparse}
        graph = helper.make_graph(self.nodes, "wirebound", [x], [y], **tables)
        opset = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="wirebound")
        return _checked(self.onnx, made)

    def _node(self, operator: str, name: str, inputs: list[str], **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], name, **attributes))
        self.at = name
        return name

    def _constant(self, name: str, value: Any) -> str:
        self.initializers.append(self.onnx.numpy_helper.from_array(value, name))
        return name

    def _layer(self, name: str, layer: Layer | Pool) -> None:
        if isinstance(layer, Pool):
            settings = {} if layer.window is None else _window(layer, layer.window)
            if settings and layer.kind == "mean":
                del settings["dilations"]
                settings["count_include_pad"] = int(layer.count_padding)
            kind = "GlobalAveragePool" if layer.window is None else "MaxPool" if layer.kind == "max" else "AveragePool"
            self._node(kind, f"{name}.pool", [self.at], **settings)
        else:
            inputs = [self.at, self._weight(f"{name}.weight", layer)]
            if layer.bias is not None:
                inputs.append(self._constant(f"{name}.bias", layer.bias))
            if isinstance(layer, Conv):
                self._node("Conv", f"{name}.conv", inputs, group=layer.window.groups, **_window(layer, layer.window))
            else:
                self._node("Gemm", f"{name}.gemm", inputs, transB=1)
        made = {"y": self.at}
        for number, node in enumerate(filter(None, ACTIVATIONS[layer.activation].onnx.split("; "))):
            operator, *given = node.split()
            own = f"{name}.{layer.activation}.{number}"
            alpha = {given.pop(): float(layer.alpha)} if given[-1] == "alpha" else {}
            for place, item in enumerate(given):
                given[place] = made[item] if item in made else self._constant(f"{own}.{place}", np.float32(item))
            made[f"${number}"] = self._node(operator, own, given, **alpha)

    def _weight(self, name: str, layer: Layer) -> str:
        shape = layer.kernel_shape if isinstance(layer, Conv) else (layer.n_out, layer.n_in)
        if self.dense:
            return self._constant(name, layer.dense().reshape(shape))
        # A sparse initialiser must have an entry: a layer without connections gets one of weight 0.
        weights = layer.weights if len(layer) else np.zeros(1, np.float32)
        positions = layer.rows * layer.n_in + layer.columns if len(layer) else np.zeros(1)  # flat, which is half as long
        values = self.onnx.numpy_helper.from_array(weights, name)
        indices = self.onnx.numpy_helper.from_array(positions.astype(np.int64), f"{name}.positions")
        self.sparse.append(self.onnx.helper.make_sparse_tensor(values, indices, shape))
        return name


def _of(layer: Conv | Pool, sizes: Sequence[Any]) -> Sequence[Any]:
    """Of numbers for height and width those of the dimensions that the layer has."""
    return sizes[2 - layer.dimensions :]


def _window(layer: Conv | Pool, window: ConvWindow) -> dict[str, Any]:
    pads = [*_of(layer, window.before), *_of(layer, window.after)]
    sizes = {"kernel_shape": window.kernel, "strides": window.stride, "dilations": window.dilation}
    return {**{name: _of(layer, size) for name, size in sizes.items()}, "pads": pads}


def _traced(onnx: Any, model: nn.Module, example: Tensor, softmax: bool, reason: str) -> bytes:
    """Through torch's exporter that traces: the newer one needs a further package and gains nothing here."""
    twin = to_dense(model).eval()
    if softmax:
        twin = nn.Sequential(twin, nn.Softmax(-1))
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "batch"}, "y": {0: "batch"}}}
    file = io.BytesIO()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the exporter's age, and shapes that the check below settles
            torch.onnx.export(twin, (example,), cast(Any, file), opset_version=OPSET, dynamo=False, **cast(Any, names))
    except Exception as error:
        raise ExportError(f"{reason}; and torch cannot write this model as ONNX: {error}") from error
    return _checked(onnx, onnx.load_from_string(file.getvalue()))


def _checked(onnx: Any, made: Any) -> bytes:
    try:
        onnx.checker.check_model(made)
        content: bytes = made.SerializeToString()
    except Exception as error:  # protobuf has its own kinds, one for each of its implementations
        raise ExportError(f"this model cannot be one ONNX file, which holds at most 2 GiB: {error}") from error
    return content
