"""Newborns that may come to some columns only: uniform over the dormant positions of those, by the rank formula.

Positions of the open columns are counted as if the others were not there ("packed"): the j-th open column of a layer has the
packed positions j · n_out and on. So a draw is exact at any density, in O(K + open columns), without rejection.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of


class OpenColumns:
    """The columns of each layer to which newborns may come: sorted and distinct, int64; None for all of them."""

    def __init__(self, geometry: Geometry, columns: Sequence[Tensor | None]) -> None:
        self.geometry, self.columns = geometry, tuple(columns)
        self.sizes = [
            size if own is None else own.numel() * n_out
            for size, own, n_out in zip(geometry.sizes, columns, geometry.n_out, strict=True)
        ]
        self.starts = list(itertools.accumulate(self.sizes, initial=0))
        self.counts = [-1 if own is None else own.numel() for own in columns]
        listed = [own for own in columns if own is not None]
        self.listed = torch.cat(listed) if listed else torch.empty(0, dtype=torch.int64)

    def without(self, closed: Sequence[bool]) -> "OpenColumns":
        """The same without the layers that are closed."""
        nothing = self.listed[:0]
        own = (nothing if shut else columns for columns, shut in zip(self.columns, closed, strict=True))
        return OpenColumns(self.geometry, list(own))

    def pack(self, positions: Tensor) -> list[Tensor]:
        """Of sorted positions through all layers, those in open columns, packed, for each layer from 0 on."""
        geometry, found = self.geometry, []
        bounds = torch.searchsorted(positions, torch.tensor(geometry.position_start, device=positions.device)).tolist()
        for layer, (first, last) in enumerate(itertools.pairwise(bounds)):
            own, columns = positions[first:last] - geometry.position_start[layer], self.columns[layer]
            if columns is not None and own.numel():
                height = geometry.n_out[layer]
                column = torch.div(own, height, rounding_mode="floor")
                number = torch.searchsorted(columns, column)
                is_open = number < columns.numel()
                is_open &= columns[number.clamp(max=max(0, columns.numel() - 1))] == column if columns.numel() else False
                own = (number * height + own - column * height)[is_open]
            found.append(own)
        return found

    def unpack(self, packed: Tensor, layer: int) -> Tensor:
        """The positions through all layers of packed ones of a layer."""
        columns, height, start = self.columns[layer], self.geometry.n_out[layer], self.geometry.position_start[layer]
        if columns is None or not packed.numel():
            return packed + start
        number = torch.div(packed, height, rounding_mode="floor")
        return start + columns[number] * height + packed - number * height


def dormant_counts(open_columns: OpenColumns, survivors: Tensor) -> list[int]:
    """How many dormant positions the open columns of each layer have beside ``survivors`` (sorted positions)."""
    occupied = open_columns.pack(survivors)
    return [size - own.numel() for size, own in zip(open_columns.sizes, occupied, strict=True)]


def draw_in_open(
    open_columns: OpenColumns, survivors: Tensor, counts: Sequence[int] | int, name: tuple[int, int, int], sample: philox.Sample,
    purpose: Stream = Stream.NEWBORN,
) -> Tensor:  # fmt: skip
    """Sorted dormant positions in open columns: so many of each layer, or so many in all; ``name``: seed, index, step."""
    (seed, index, step), device = name, survivors.device
    occupied = open_columns.pack(survivors)
    rooms = [size - own.numel() for size, own in zip(open_columns.sizes, occupied, strict=True)]
    if isinstance(counts, int):  # ranks through all layers, then taken apart
        ranks = sample(sum(rooms), counts, seed, stream_of(purpose, index), step, device)
        edges = torch.tensor(list(itertools.accumulate(rooms, initial=0)), device=device)
        each = torch.searchsorted(ranks, edges).tolist()
        by_layer = [ranks[a:b] - edge for (a, b), edge in zip(itertools.pairwise(each), edges[:-1], strict=True)]
    else:
        by_layer = [
            sample(room, count, seed, stream_of(purpose, index, layer=layer), step, device)
            for layer, (room, count) in enumerate(zip(rooms, counts, strict=True))
        ]
    drawn = (philox.dormant_at(ranks, own) for ranks, own in zip(by_layer, occupied, strict=True))
    return torch.cat([open_columns.unpack(packed, layer) for layer, packed in enumerate(drawn)])
