"""Between positions, counted down the columns of all layers, and places in the arrays of a wiring."""

import torch
from torch import Tensor

from wirebound.ops.layout import rows_of
from wirebound.ops.rule import WiringArrays


class ReferencePlaces:
    def find(self, wiring: WiringArrays, positions: Tensor) -> Tensor:
        """Where the connections at these positions are stored, int64; -1 where there is none. They may have any order,
        and are of [0, possible)."""
        return self.find_within(wiring, positions, None)

    def find_within(self, wiring: WiringArrays, positions: Tensor, longest: int | None) -> Tensor:
        """``find`` where no column has more than ``longest`` connections; None: it is looked up."""
        packed_rows, colptr = wiring.packed_rows, wiring.colptr
        if not positions.numel() or not packed_rows.numel():
            return torch.full_like(positions, -1)
        columns, rows = wiring.geometry.locate(positions)
        low, end = colptr[columns], colptr[columns + 1]
        high, last = end, packed_rows.numel() - 1
        longest = int((end - low).max()) if longest is None else longest
        for _ in range(longest.bit_length()):  # a search in the column of each, all at once
            middle = (low + high) >> 1
            below = (rows_of(packed_rows[middle.clamp(max=last)]) < rows) & (low < high)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        there = (low < end) & (rows_of(packed_rows[low.clamp(max=last)]) == rows)
        return torch.where(there, low, -1)

    def positions_at(self, wiring: WiringArrays, places: Tensor) -> Tensor:
        """The way back: the position of the connection at each place, which are of [0, K) in any order."""
        columns = torch.searchsorted(wiring.colptr, places, right=True) - 1
        return wiring.geometry.position_of(columns, rows_of(wiring.packed_rows[places]))
