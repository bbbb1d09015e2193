"""How a connection is stored: one int32 that holds its row and its sign, and where it stands among all positions.

A wiring spans layers one after another. Layer i is a matrix of ``n_out`` rows and ``n_in`` columns; positions are
counted input-major (down the first column, then the second, ...), through all layers. Connections are kept sorted by
position, which makes the column pointers a complete index.
"""

import functools
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from wirebound.ops.faults import BAD_INDEX, raise_fault


class LayerIndex(NamedTuple):
    """Where one layer stands in the arrays of its wiring: connections start .. end, columns first .. last."""

    packed_rows: Tensor
    colptr: Tensor
    start: int
    end: int
    first: int
    last: int
    bound: bool = False  # θ is bound to its sign, so that one below 0 is dormant

    def layer_packed_rows(self) -> Tensor:
        return self.packed_rows[self.start : self.end]

    def layer_colptr(self) -> Tensor:
        """Column pointers of the layer, which keep counting from the start of the wiring."""
        return self.colptr[self.first : self.last + 1]


def index_of(rows: Tensor, columns: Tensor, n_in: int) -> LayerIndex:
    """The index of positive connections of a matrix, sorted by column and then by row."""
    colptr = torch.searchsorted(columns, torch.arange(n_in + 1, device=columns.device))
    return LayerIndex(rows.to(torch.int32), colptr, 0, rows.numel(), 0, n_in)


ROW_MASK, MAX_ROWS, MAX_POSITIONS = 0x7FFFFFFF, 1 << 31, 1 << 62


def rows_of(packed_rows: Tensor) -> Tensor:
    """The row of each connection, as int64."""
    return (packed_rows & ROW_MASK).to(torch.int64)


def signs_of(packed_rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The sign of each connection, +1 or -1: bit 31 of the packed row, which makes it negative."""
    return 1 - 2 * (packed_rows < 0).to(dtype)


def pack(rows: Tensor, negative: Tensor) -> Tensor:
    """One int32 for each connection from its row and whether its sign is -1."""
    return torch.where(negative, rows - MAX_ROWS, rows).to(torch.int32)


def for_connections(of_columns: Tensor, colptr: Tensor, connections: int) -> Tensor:
    """For each connection what its column has in ``of_columns``."""
    counts = colptr[1:] - colptr[:-1]
    # torch writes wherever the counts say, so overwritten pointers are found here; asking a graphics card would wait.
    if counts.is_cpu and type(counts) is Tensor and (bool((counts < 0).any()) or int(counts.sum()) != connections or bool((counts > connections).any())):
        raise_fault(BAD_INDEX)
    return torch.repeat_interleave(of_columns, counts, output_size=connections)


@dataclass(frozen=True)
class Geometry:
    """The matrices that a wiring spans, and the numbers that follow from their shapes."""

    n_out: tuple[int, ...]
    n_in: tuple[int, ...]

    def __post_init__(self) -> None:
        for rows, columns in zip(self.n_out, self.n_in, strict=True):
            if not (0 <= rows < MAX_ROWS and columns >= 0):
                raise ValueError(f"a layer of shape ({rows}, {columns}) must have 0 <= rows < 2^31 and columns >= 0")
        if self.possible >= MAX_POSITIONS:
            raise ValueError(f"possible connections (={self.possible}) must be below 2^62")

    @property
    def layers(self) -> int:
        return len(self.n_out)

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Possible connections of each layer."""
        return tuple(rows * columns for rows, columns in zip(self.n_out, self.n_in, strict=True))

    @functools.cached_property
    def possible(self) -> int:
        return sum(self.sizes)

    # The first column, row or position of each layer among all of them, and their number at the end.

    @functools.cached_property
    def column_start(self) -> tuple[int, ...]:
        return tuple(accumulate(self.n_in, initial=0))

    @functools.cached_property
    def row_start(self) -> tuple[int, ...]:
        return tuple(accumulate(self.n_out, initial=0))

    @functools.cached_property
    def position_start(self) -> tuple[int, ...]:
        return tuple(accumulate(self.sizes, initial=0))

    def locate(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Column (among all columns) and row of each position."""
        numbers = [self.position_start[:-1], self.n_out, self.column_start[:-1]]
        starts, heights, first = torch.tensor(numbers, dtype=torch.int64, device=positions.device)
        # An empty layer starts where the next one does; searchsorted(right) already steps over it.
        layer = torch.searchsorted(starts, positions, right=True) - 1
        local = positions - starts[layer]
        return first[layer] + local // heights[layer], local % heights[layer]

    def position_of(self, columns: Tensor, rows: Tensor) -> Tensor:
        """The position at a column (among all columns) and row."""
        numbers = [self.column_start[:-1], self.n_out, self.position_start[:-1]]
        starts, heights, first = torch.tensor(numbers, dtype=torch.int64, device=columns.device)
        layer = torch.searchsorted(starts, columns, right=True) - 1
        return first[layer] + (columns - starts[layer]) * heights[layer] + rows

    def positions(self, packed_rows: Tensor, colptr: Tensor) -> Tensor:
        """The position of each connection, int64, sorted because the connections are."""
        device, layers = packed_rows.device, zip(self.position_start, self.n_out, self.n_in, strict=False)
        starts = [start + rows * torch.arange(columns, device=device) for start, rows, columns in layers]
        column_base = torch.cat(starts) if starts else torch.empty(0, dtype=torch.int64, device=device)
        return for_connections(column_base, colptr, packed_rows.numel()) + rows_of(packed_rows)
