"""ONNX: a plain stack as Gemm nodes with sparse initialisers, any other model through torch's own exporter.

Weights are ``sparse_initializer`` entries, so a file is O(K); onnxruntime turns them into dense matrices when it loads
the file. ``dense=True`` writes ordinary initialisers, for tools that do not read sparse ones.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wirebound.export.errors import ExportError, require
from wirebound.export.network import Layer, Network, read_network
from wirebound.nn.to_dense import to_dense
from wirebound.train.stack import read_stack

OPSET, IR_VERSION = 17, 8  # old enough for every runtime of the last years
_NODES = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}


def to_onnx(
    model: nn.Module | Network,
    path: str | os.PathLike[str],
    *,
    dense: bool = False,
    softmax: bool = False,
    example: Tensor | None = None,
) -> Path:
    """Write a model whose input ``x`` is [batch, features] and whose output is ``y``.

    Args:
        model: a plain stack; or any other model, if there is an
        example: a batch of inputs, with which torch traces the model after ``wb.to_dense``. Weights are dense then.
        path: the file.
        dense: write dense matrices instead of sparse ones.
        softmax: let ``y`` be probabilities instead of what the last layer gives.
    """
    onnx = require("onnx", "onnx")
    if isinstance(model, nn.Module) and isinstance(reason := read_stack(model), str):
        if example is None:
            raise ExportError(f"{reason}: give an example batch, with which torch can trace the model")
        return _traced(onnx, model, example, Path(path), softmax)
    network = read_network(model)
    nodes: list[Any] = []
    initializers: list[Any] = []
    sparse: list[Any] = []
    value = "x"
    for number, layer in enumerate(network.layers):
        last = number == len(network.layers) - 1
        weight, inputs = f"layer_{number}.weight", [value, f"layer_{number}.weight"]
        if dense or len(layer) == 0:
            initializers.append(onnx.numpy_helper.from_array(layer.dense(), weight))
        else:
            sparse.append(_sparse(onnx, layer, weight))
        if layer.bias is not None:
            inputs.append(f"layer_{number}.bias")
            initializers.append(onnx.numpy_helper.from_array(layer.bias, inputs[-1]))
        steps = [("Gemm", inputs, {"transB": 1})]
        if layer.activation in _NODES:
            steps.append((_NODES[layer.activation], [], {}))
        if last and softmax:
            steps.append(("Softmax", [], {"axis": 1}))
        for place, (operator, given, attributes) in enumerate(steps):
            output = "y" if last and place == len(steps) - 1 else f"layer_{number}.{operator.lower()}"
            nodes.append(onnx.helper.make_node(operator, given or [value], [output], output, **attributes))
            value = output
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "wirebound",
        [onnx.helper.make_tensor_value_info("x", kind, ["batch", network.sizes[0]])],
        [onnx.helper.make_tensor_value_info("y", kind, ["batch", network.sizes[-1]])],
        initializer=initializers,
        sparse_initializer=sparse,
    )
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="wirebound"
    )
    onnx.checker.check_model(made)
    onnx.save(made, os.fspath(path))
    return Path(path)


def _sparse(onnx: Any, layer: Layer, name: str) -> Any:
    positions = layer.rows * layer.n_in + layer.columns  # flat, which the format allows and which is half as long
    values = onnx.numpy_helper.from_array(layer.weights, name)
    indices = onnx.numpy_helper.from_array(positions.astype(np.int64), f"{name}.positions")
    return onnx.helper.make_sparse_tensor(values, indices, [layer.n_out, layer.n_in])


def _traced(onnx: Any, model: nn.Module, example: Tensor, path: Path, softmax: bool) -> Path:
    """Through torch's exporter that traces: the newer one needs a further package and gains nothing here."""
    twin = to_dense(model).eval()
    if softmax:
        twin = nn.Sequential(twin, nn.Softmax(-1))
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the exporter's age, and shapes that the check below settles
            torch.onnx.export(
                twin, (example,), os.fspath(path), input_names=["x"], output_names=["y"], dynamic_axes=axes,
                opset_version=OPSET, dynamo=False,
            )  # fmt: skip
    except Exception as error:
        raise ExportError(f"torch cannot write this model as ONNX: {error}") from error
    onnx.checker.check_model(onnx.load(os.fspath(path)))
    return path
