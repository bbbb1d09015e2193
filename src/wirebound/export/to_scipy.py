"""SciPy: a folder with one ``.npz`` a layer, which ``scipy.sparse.load_npz`` opens, and ``network.json`` beside them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from wirebound.export.layers import Conv, Layer, Network, Pool, Step
from wirebound.export.network import read_network
from wirebound.export.write import settle_place, write_folder


def to_scipy(
    model: nn.Module | Network, folder: str | os.PathLike[str], *, input_shape: Sequence[int] | None = None
) -> list[Path]:
    """Write each layer as a CSR matrix [outputs, inputs]; returns the files, first layer first.

    ``scipy.sparse.load_npz(file)`` gives the matrix, newborns of weight 0 included, ``numpy.load(file)`` its ``bias``,
    ``activation`` and ``alpha``. The matrix of a convolution is its kernel [output channels, input channels of a group ×
    places]; ``network.json`` lists the layers in order, with the settings of convolutions and pooling.

    Args:
        model: a chain of layers (``read_network``).
        folder: where the files go.
        input_shape: of one example, without the batch: ``network.json`` then has the size that each layer sees.
    """
    place = settle_place(folder, folder=True)
    network = read_network(model, input_shape)
    files: list[Path] = []

    def write(beside: Path) -> dict[str, Any]:
        described = []
        for number, layer in enumerate(network.layers):
            described.append(_described(layer))
            if isinstance(layer, Layer):
                name = f"layer_{number}.npz"
                _save(beside / name, layer)
                files.append(place / name)
                described[-1] = {"file": name, **described[-1]}
        return {"layers": described}

    write_folder(place, write)
    return files


def _save(path: Path, layer: Layer) -> None:
    matrix = layer.matrix()
    # The names are those of scipy.sparse.save_npz; what it does not know is ignored by load_npz.
    known = {"format": np.array(b"csr"), "shape": np.array(matrix.shape), "data": matrix.data}
    known |= {"indices": matrix.indices, "indptr": matrix.indptr, "_is_array": np.array(True)}
    bias = np.zeros(layer.n_out, dtype=np.float32) if layer.bias is None else layer.bias
    alpha = np.array(layer.alpha, dtype=np.float32)
    np.savez_compressed(path, **known, bias=bias, activation=np.array(layer.activation), alpha=alpha)


def _described(layer: Step) -> dict[str, Any]:
    about: dict[str, Any] = {"layer": layer.name, "kind": "linear", "activation": layer.activation}
    if layer.alpha:
        about["alpha"] = layer.alpha
    if isinstance(layer, Layer):
        about |= {"shape": [layer.n_out, layer.n_in], "connections": len(layer)}
    if isinstance(layer, Conv | Pool):
        window, first = layer.window, 2 - layer.dimensions
        about["kind"] = f"{f'{layer.kind}-pool' if isinstance(layer, Pool) else 'conv'}{layer.dimensions}d"
        about["input_size"] = None if layer.size is None else layer.size[first:]
        if window is not None:  # of a pooling layer: the window is everything
            about |= {"kernel": window.kernel[first:], "stride": window.stride[first:],
                      "padding": [window.before[first:], window.after[first:]], "dilation": window.dilation[first:]}
            if isinstance(layer, Conv):
                about |= {"groups": window.groups, "in_channels": window.in_channels}
        if isinstance(layer, Pool) and layer.kind == "mean":
            about["count_padding"] = layer.count_padding
    return about
