"""SciPy: a folder with one ``.npz`` a layer, which ``scipy.sparse.load_npz`` opens, and ``network.json`` beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from torch import nn

from wirebound.export.network import Network, read_network


def to_scipy(model: nn.Module | Network, folder: str | os.PathLike[str]) -> list[Path]:
    """Write each layer as a CSR matrix [outputs, inputs]; returns the files, first layer first.

    ``scipy.sparse.load_npz(file)`` gives the matrix, newborn connections of weight 0 included. The same file holds
    ``bias`` (zeros where a layer has none) and ``activation`` (``linear``, ``relu``, ``tanh`` or ``sigmoid``), which
    ``numpy.load(file)`` gives; ``network.json`` lists the files in their order.
    """
    network = read_network(model)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    files, described = [], []
    for number, layer in enumerate(network.layers):
        path = place / f"layer_{number}.npz"
        matrix = layer.matrix()
        bias = np.zeros(layer.n_out, dtype=np.float32) if layer.bias is None else layer.bias
        # The names are those of scipy.sparse.save_npz; what it does not know is ignored by load_npz.
        np.savez_compressed(
            path,
            format=np.array("csr".encode("ascii")),
            shape=np.array(matrix.shape),
            data=matrix.data,
            indices=matrix.indices,
            indptr=matrix.indptr,
            _is_array=np.array(True),
            bias=bias,
            activation=np.array(layer.activation),
        )
        files.append(path)
        described.append({"file": path.name, "layer": layer.name, "shape": [layer.n_out, layer.n_in],
                          "connections": len(layer), "activation": layer.activation})
    text = json.dumps({"layers": described}, indent=2) + "\n"
    (place / "network.json").write_text(text, encoding="utf-8")
    return files
