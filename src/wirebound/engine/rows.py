"""A data set of sparse rows, as SciPy's CSR matrices hold them: what an engine takes in place of a tensor of examples.

And what the first layer should know of them before a step is taken: which columns occur at all.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wirebound import ops
from wirebound.nn.linear import SparseLinear
from wirebound.ops import philox
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring.occurring import SeenColumns

_MOST_COLUMNS = 2**31  # their numbers have 32 bits
_DRAWS = 4  # after so many, where rows are few, most of what is drawn is known


@dataclass(frozen=True, eq=False)
class SparseRows:
    """The nonzeros of example i are ``starts[i] .. starts[i + 1]``; a column that occurs twice in a row adds up."""

    starts: Tensor  # int64, [examples + 1]
    columns: Tensor  # int32, [nonzeros]
    values: Tensor  # float32, [nonzeros]
    width: int

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """Of a SciPy matrix or array in CSR format, whose numbers are copied only if they are no float32."""
        if getattr(matrix, "format", None) != "csr":
            raise ValueError(f"x (={type(matrix).__name__}) must be a SciPy matrix in CSR format: use x.tocsr()")
        examples, width = matrix.shape
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(matrix.data, dtype=np.float32)
        starts, columns = np.asarray(matrix.indptr, dtype=np.int64), np.asarray(matrix.indices)
        rows = cls(_tensor(starts), _tensor(columns.astype(np.int32, copy=False)), _tensor(values), width)
        rows._check(examples, columns)
        return rows

    def _check(self, examples: int, columns: np.ndarray) -> None:
        """A kernel follows these numbers: what they say must be so."""
        if self.width >= _MOST_COLUMNS:
            raise ValueError(f"x has {self.width} columns, must have fewer than {_MOST_COLUMNS}")
        starts = self.starts
        grows = len(starts) == examples + 1 and not int(starts[0]) and bool((starts.diff() >= 0).all())
        if not grows or int(starts[-1]) != len(self.values) or len(self.columns) != len(self.values):
            raise ValueError("x must be a valid CSR matrix: indptr must rise from 0 to the number of nonzeros")
        if columns.size and not 0 <= int(columns.min()) <= int(columns.max()) < self.width:
            raise ValueError(f"x must be a valid CSR matrix: indices must be in [0, {self.width})")

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.width

    @property
    def nonzeros(self) -> int:
        return len(self.values)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, chosen: Tensor) -> Tensor:
        """The rows with these numbers as a torch CSR tensor: their nonzeros are copied, nothing is as wide as a row."""
        first, counts = self.starts[chosen], self.starts[chosen + 1] - self.starts[chosen]
        starts = torch.zeros(len(chosen) + 1, dtype=torch.int64)
        torch.cumsum(counts, 0, out=starts[1:])
        at = torch.arange(int(starts[-1])) + (first - starts[:-1]).repeat_interleave(counts)
        size = (len(chosen), self.width)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch says once that its CSR tensors are in beta
            return torch.sparse_csr_tensor(starts, self.columns[at].long(), self.values[at], size, check_invariants=False)

    def occurring(self) -> Tensor:
        """The columns that occur, sorted: int64."""
        seen = torch.zeros(self.width, dtype=torch.bool)
        seen[self.columns.long()] = True
        return torch.nonzero(seen).view(-1)


def first_layer(model: nn.Module) -> SparseLinear | None:
    """The layer that is given the rows, where it is a sparse one."""
    found = next((module for module in model.modules() if isinstance(module, SparseLinear | nn.Linear)), None)
    return found if isinstance(found, SparseLinear) else None


def note_columns(layer: SparseLinear | None, columns: Tensor) -> None:
    """These columns occur in the inputs of a layer, so its newborns may come there (where the method wants to know)."""
    if layer is not None and layer.wiring.seen is not None:
        seen = layer.wiring.seen.setdefault(layer.layer_id, SeenColumns(layer.in_features, layer.wiring.theta.device))
        seen.flags[columns] = 1
        seen.count = int(seen.flags.sum())


@torch.no_grad()
def start_where_inputs_are(layer: SparseLinear | None, rows: SparseRows) -> None:
    """Draw the first wiring of a layer again: each connection at the column of a nonzero of the data set; θ stay as they are.

    A column gets connections as often as its input is there, as it later gets newborns. Uniformly drawn over a million columns
    most connections would begin, and with a fixed wiring stay, where an input never comes. If so many different ones cannot
    be had, the rest is drawn uniformly over the columns that occur; nothing is done if these have no room for all.
    """
    if layer is None or not rows.nonzeros:
        return
    wiring, n_out, occurring = layer.wiring, layer.out_features, rows.occurring()
    start, end = wiring.bounds[layer.layer_id : layer.layer_id + 2]
    count, possible = end - start, occurring.numel() * n_out
    if possible < count or possible == layer.in_features * n_out == count:
        return
    stream, device = stream_of(Stream.MOVED, wiring.index, layer=layer.layer_id), occurring.device
    ranks = torch.empty(0, dtype=torch.int64)  # of the positions in the columns that occur
    for attempt in range(_DRAWS):
        missing = count - ranks.numel()
        if not missing:
            break
        nonzero, row = philox.words(wiring.seed, stream, attempt << 32, (2 * missing + 3) // 4 * 4, device).view(2, -1)
        columns = rows.columns[nonzero * rows.nonzeros >> 32].long()
        drawn = torch.searchsorted(occurring, columns) * n_out + (row * n_out >> 32)
        ranks = torch.cat([ranks, _new_ones(ranks, drawn)[:missing]]).sort().values
    if missing := count - ranks.numel():
        free = ops.backend_on(device).sample_sorted(possible - ranks.numel(), missing, wiring.seed, stream, _DRAWS << 32, device)
        free += torch.searchsorted(ranks - torch.arange(ranks.numel()), free, right=True)
        ranks = torch.cat([ranks, free]).sort().values
    first = sum(shape.n_in * shape.n_out for shape in wiring.layers[: layer.layer_id])
    positions = first + occurring[ranks // n_out] * n_out + ranks % n_out
    strength = wiring.theta[start:end].abs().clone()
    wiring.replace_(torch.arange(start, end, device=device), positions, [], strength)


def _new_ones(known: Tensor, drawn: Tensor) -> Tensor:
    """Those drawn that are not known (sorted), each once, in the order in which they were drawn."""
    at = torch.searchsorted(known, drawn).clamp(max=max(0, known.numel() - 1))
    drawn = drawn[known[at] != drawn] if known.numel() else drawn
    order = torch.argsort(drawn, stable=True)
    ordered = drawn[order]
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return drawn[order[is_first].sort().values]


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())
