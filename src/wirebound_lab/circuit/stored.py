"""The matrices in a model's file (docs/format.md), connection by connection, without torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from wirebound_lab.report import ReportError

MODEL = "model.safetensors"
_ROW = 0x7FFFFFFF  # of packed_rows; the bit above is the sign


@dataclass(frozen=True)
class Matrix:
    """One matrix [n_out, n_in] as its connections, sorted by column and row."""

    name: str
    n_out: int
    n_in: int
    columns: NDArray[np.int64]
    rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    numbers: NDArray[np.int64]  # of the connections among all in wirings, as theta has them; −1 in dense matrices

    def only(self, kept: NDArray[np.bool_]) -> "Matrix":
        parts = self.columns[kept], self.rows[kept], self.weights[kept], self.numbers[kept]
        return Matrix(self.name, self.n_out, self.n_in, *parts)


def read_matrices(file: Path) -> list[Matrix]:
    """Every matrix of a model that ``wb.save`` wrote: those of its wirings in their order, then dense ones."""
    try:
        with safe_open(file, framework="np") as stored:
            names = set(stored.keys())
            model = json.loads((stored.metadata() or {})["wirebound"])["model"]
            found, first = [], 0
            for wiring in model["wirings"]:
                found += _of_wiring(wiring, stored, names, first)
                first += int(wiring["budget"])
            known = {matrix.name for matrix in found}
            for key in model["state"]:  # in the order of the model
                name = key.removesuffix(".weight")
                if name != key and name not in known and len(stored.get_slice(key).get_shape()) == 2:
                    found.append(_of_dense(name, stored.get_tensor(key)))
            if all(matrix.name.isdigit() for matrix in found):  # a stack of which some layers are dense
                found.sort(key=lambda matrix: int(matrix.name))
    except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        raise ReportError(f"model (={file}) must be a file that wb.save wrote: {str(error)[:200]}") from error
    if not found:
        raise ReportError(f"model (={file}) must hold a matrix, sparse or dense")
    return found


def _of_wiring(wiring: Any, stored: Any, names: set[str], first: int) -> list[Matrix]:
    def tensor(*ends: str) -> NDArray[Any]:
        end = next(end for end in ends if f"{wiring['name']}.{end}" in names)
        array: NDArray[Any] = stored.get_tensor(f"{wiring['name']}.{end}")
        return array

    theta, colptr = tensor("theta").astype(np.float32), tensor("colptr")
    packed = tensor("packed_rows", "code").view(np.uint32)
    rows = (packed & np.uint32(_ROW)).astype(np.int64)
    weights = np.where(packed > _ROW, -theta, theta)
    alive = tensor("alive") if f"{wiring['name']}.alive" in names else np.ones(len(theta), bool)
    found, column = [], 0
    for name, n_out, n_in in wiring["layers"]:
        pointers = colptr[column : column + n_in + 1]
        begin, end = int(pointers[0]), int(pointers[-1])
        columns = np.repeat(np.arange(n_in, dtype=np.int64), np.diff(pointers))
        numbers = np.arange(first + begin, first + end, dtype=np.int64)
        whole = Matrix(name, n_out, n_in, columns, rows[begin:end], weights[begin:end], numbers)
        found.append(whole if alive[begin:end].all() else whole.only(alive[begin:end]))
        column += n_in
    return found


def _of_dense(name: str, weight: NDArray[Any]) -> Matrix:
    columns, rows = np.nonzero(weight.T)
    values = weight[rows, columns].astype(np.float32)
    n_out, n_in = weight.shape
    return Matrix(name, n_out, n_in, columns, rows, values, np.full(len(values), -1, np.int64))


def strongest(matrices: list[Matrix], most: int) -> list[Matrix]:
    """At most ``most`` connections in all: each neuron keeps its strongest ones, as many of them as there is room for."""
    if sum(len(matrix.weights) for matrix in matrices) <= most:
        return matrices
    ranks = [np.minimum(_ranks(m.columns, m.weights), _ranks(m.rows, m.weights)) for m in matrices]
    weights = [np.abs(matrix.weights) for matrix in matrices]
    order = np.lexsort((-np.concatenate(weights), np.concatenate(ranks)))
    kept = np.zeros(len(order), bool)
    kept[order[:most]] = True
    ends = np.cumsum([len(matrix.weights) for matrix in matrices])[:-1]
    return [matrix.only(part) for matrix, part in zip(matrices, np.split(kept, ends), strict=True)]


def _ranks(neurons: NDArray[np.int64], weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Of each connection among those of its neuron: 0 for the strongest."""
    order = np.lexsort((-np.abs(weights), neurons))
    counts = np.bincount(neurons) if len(neurons) else np.zeros(0, np.int64)
    starts = np.cumsum(counts) - counts
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - starts[neurons[order]]
    return ranks
