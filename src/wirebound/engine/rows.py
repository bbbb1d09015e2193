"""A data set of sparse rows, as SciPy's CSR matrices hold them: what an engine takes in place of a tensor of examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_MOST_COLUMNS = 2**31  # their numbers have 32 bits


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
        return torch.sparse_csr_tensor(starts, self.columns[at].long(), self.values[at], size, check_invariants=False)

    def occurring(self) -> Tensor:
        """The columns that occur, sorted: int64."""
        seen = torch.zeros(self.width, dtype=torch.bool)
        seen[self.columns.long()] = True
        return torch.nonzero(seen).view(-1)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())
