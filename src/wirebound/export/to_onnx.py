"""ONNX: a chain of layers with sparse initialisers, any other model through torch's own exporter.

Weights are ``sparse_initializer`` entries, so a file is O(K); onnxruntime turns them into dense matrices when it loads
the file. ``dense=True`` writes ordinary initialisers, for tools that do not read sparse ones.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from wirebound.export.activation import ACTIVATIONS
from wirebound.export.errors import ExportError, NotAChain, require
from wirebound.export.layers import Conv, Layer, Network, Pool, Step
from wirebound.export.network import read_network
from wirebound.export.room import require_dense
from wirebound.export.write import file_place, write_pieces
from wirebound.nn.to_dense import to_dense

OPSET, IR_VERSION = 17, 8  # old enough for every runtime of the last years


def to_onnx(
    model: nn.Module | Network,
    path: str | os.PathLike[str],
    *,
    dense: bool = False,
    softmax: bool = False,
    example: Tensor | None = None,
    input_shape: Sequence[int] | None = None,
) -> Path:
    """Write a model whose input ``x`` is [batch, features] or [batch, channels, ...] and whose output is ``y``.

    Args:
        model: a chain of layers (``read_network``); or any other model, if there is an
        example: a batch of inputs, with which torch traces the model after ``wb.to_dense``. Weights are dense then.
        path: the file.
        dense: write dense matrices instead of sparse ones.
        softmax: let ``y`` be probabilities instead of what the last layer gives.
        input_shape: of one example, without the batch: the file then takes inputs of this height and width only.
    """
    onnx = require("onnx", "onnx")
    place = file_place(path)
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
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.sparse: list[Any] = []
        self.at = "x"

    def finish(self, softmax: bool) -> bytes:
        onnx, network = self.onnx, self.network
        first = network.layers[0]
        channels = isinstance(first, Conv | Pool) or (network.shape is not None and len(network.shape) > 1)
        given: list[int | str] = ["batch", *self._input_sizes(first)]
        if network.flat and channels:
            self._reshape(list(network.input_shape))
        for number, layer in enumerate(network.layers):
            spatial = isinstance(layer, Conv | Pool)
            if channels and not spatial:
                self._node("Flatten", f"layer_{number}.flatten", [self.at], axis=1)
            channels = spatial
            self._layer(f"layer_{number}", layer)
        if softmax and network.layers[-1].activation != "softmax":
            if channels:
                raise ExportError("softmax needs a last layer that is linear, this one is not")
            self._node("Softmax", "softmax", [self.at], axis=1)
        self.nodes[-1].output[0] = "y"
        kind = onnx.TensorProto.FLOAT
        last = network.layers[-1]
        out: list[int | str] = ["batch", last.n_out] if isinstance(last, Layer) else ["batch", "channels"]
        if isinstance(last, Conv | Pool):
            out += ["out_height", "out_width"][2 - last.dimensions :]
        graph = onnx.helper.make_graph(
            self.nodes,
            "wirebound",
            [onnx.helper.make_tensor_value_info("x", kind, given)],
            [onnx.helper.make_tensor_value_info("y", kind, out)],
            initializer=self.initializers,
            sparse_initializer=self.sparse,
        )
        opset = [onnx.helper.make_opsetid("", OPSET)]
        made = onnx.helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="wirebound")
        return _checked(onnx, made)

    def _input_sizes(self, first: Step) -> list[int | str]:
        network = self.network
        if network.flat:
            return [int(np.prod(network.input_shape))]
        if network.shape is not None:
            return list(network.shape)
        assert isinstance(first, Conv | Pool)
        channels: int | str = first.window.in_channels if isinstance(first, Conv) else "channels"
        return [channels, *["height", "width"][2 - first.dimensions :]]

    def _node(self, operator: str, name: str, inputs: list[str], **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], name, **attributes))
        self.at = name
        return name

    def _reshape(self, shape: list[int]) -> None:
        sizes = np.array([-1, *shape], dtype=np.int64)
        self.initializers.append(self.onnx.numpy_helper.from_array(sizes, "shape"))
        self._node("Reshape", "shaped", ["x", "shape"])

    def _layer(self, name: str, layer: Step) -> None:
        if isinstance(layer, Pool):
            self._pool(name, layer)
        else:
            inputs = [self.at, self._weight(f"{name}.weight", layer)]
            if layer.bias is not None:
                inputs.append(f"{name}.bias")
                self.initializers.append(self.onnx.numpy_helper.from_array(layer.bias, inputs[-1]))
            if isinstance(layer, Conv):
                window = layer.window
                self._node("Conv", f"{name}.conv", inputs, group=window.groups, **_window(layer.dimensions, window))
            else:
                self._node("Gemm", f"{name}.gemm", inputs, transB=1)
        self._activation(name, layer)

    def _weight(self, name: str, layer: Layer) -> str:
        shape = layer.kernel_shape if isinstance(layer, Conv) else (layer.n_out, layer.n_in)
        if self.dense:
            self.initializers.append(self.onnx.numpy_helper.from_array(layer.dense().reshape(shape), name))
            return name
        # A sparse initialiser must have an entry: a layer without connections gets one of weight 0.
        rows, columns, weights = layer.rows, layer.columns, layer.weights
        if not len(layer):
            rows, columns, weights = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.float32)
        positions = rows * layer.n_in + columns  # flat, which the format allows and which is half as long
        values = self.onnx.numpy_helper.from_array(weights, name)
        indices = self.onnx.numpy_helper.from_array(positions.astype(np.int64), f"{name}.positions")
        self.sparse.append(self.onnx.helper.make_sparse_tensor(values, indices, shape))
        return name

    def _pool(self, name: str, pool: Pool) -> None:
        if pool.window is None:
            self._node("GlobalAveragePool", f"{name}.pool", [self.at])
            return
        settings = _window(pool.dimensions, pool.window)
        if pool.kind == "mean":
            del settings["dilations"]
            settings["count_include_pad"] = int(pool.count_padding)
        self._node("MaxPool" if pool.kind == "max" else "AveragePool", f"{name}.pool", [self.at], **settings)

    def _activation(self, name: str, layer: Step) -> None:
        given = self.at
        made: list[str] = []
        for number, (operator, inputs, attributes) in enumerate(ACTIVATIONS[layer.activation].onnx):
            names = []
            for place, item in enumerate(inputs):
                if isinstance(item, float):
                    names.append(f"{name}.{layer.activation}.{number}.{place}")
                    self.initializers.append(self.onnx.numpy_helper.from_array(np.float32(item), names[-1]))
                else:
                    names.append(given if item == "y" else made[int(item[1:])])
            settings = {key: float(layer.alpha) for key in attributes}
            made.append(self._node(operator, f"{name}.{layer.activation}.{number}", names, **settings))


def _window(dimensions: int, window: Any) -> dict[str, Any]:
    first = 2 - dimensions
    return {
        "kernel_shape": window.kernel[first:],
        "strides": window.stride[first:],
        "dilations": window.dilation[first:],
        "pads": [*window.before[first:], *window.after[first:]],
    }


def _traced(onnx: Any, model: nn.Module, example: Tensor, softmax: bool, reason: str) -> bytes:
    """Through torch's exporter that traces: the newer one needs a further package and gains nothing here."""
    twin = to_dense(model).eval()
    if softmax:
        twin = nn.Sequential(twin, nn.Softmax(-1))
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    file = io.BytesIO()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the exporter's age, and shapes that the check below settles
            torch.onnx.export(
                twin, (example,), cast(Any, file), input_names=["x"], output_names=["y"], dynamic_axes=axes,
                opset_version=OPSET, dynamo=False,
            )  # fmt: skip
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
