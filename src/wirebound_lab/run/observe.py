"""What a wiring looks like at the end of an epoch: where its connections are, and how old they are, in whole epochs.

A connection is as old as the number of epochs since it was first there at the end of one and at the end of every one
after it; before the first step all are of epoch 0. One that died and came back in between is taken for one that stayed.
"""

import itertools
from typing import Any

import torch
from torch import Tensor

from wirebound.checkpoint import CheckpointError
from wirebound.ledger import Entry
from wirebound.methods import Method
from wirebound.wiring import LayerShape

BINS = 128  # of rows, and of columns
_FINE = 16  # ages below this have a bin each; above, eight bins for each doubling


def pool(counts: Tensor) -> tuple[list[int], int]:
    """Counts added up in groups of neighbours, as small as makes at most ``BINS`` of them, and the size of a group."""
    size = max(1, -(-counts.numel() // BINS))
    padded = torch.nn.functional.pad(counts, (0, -counts.numel() % size))
    return padded.view(-1, size).sum(1).tolist(), size


def age_bins(oldest: int) -> list[int]:
    """The lowest age of each bin, for ages 0 .. ``oldest``: 0, 1, ... 15, 16, 18, ... 30, 32, 36, ..."""
    edges, start = list(range(_FINE)), _FINE
    while start <= oldest:
        edges += range(start, 2 * start, start // 8)
        start *= 2
    return [edge for edge in edges if edge <= oldest]


class Observer:
    """Looks at a method's connections at the end of each epoch, and remembers since when each is there."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.positions: list[Tensor] = []  # of each layer at the last look, sorted
        self.births: list[Tensor] = []  # the epoch in which each was first seen

    def look(self, epoch: int) -> dict[str, Any] | None:
        """The record of this epoch; None where nothing can be wired otherwise, because all connections are there."""
        positions = self.method.layer_positions()
        if positions is None:
            return None
        self.births, self.positions = self._births(positions, epoch), positions
        layers, inputs = [], None
        for shape, places in zip(self.method.shapes, positions, strict=True):
            columns = torch.bincount(places // shape.n_out, minlength=shape.n_in)
            inputs = columns.tolist() if inputs is None else inputs
            rows, row_group = pool(torch.bincount(places % shape.n_out, minlength=shape.n_out))
            pooled, column_group = pool(columns)
            counted = {"rows": rows, "row_group": row_group, "columns": pooled, "column_group": column_group}
            layers.append({"name": shape.name, "shape": [shape.n_out, shape.n_in], **counted})
        return {"inputs": inputs or [], "layers": layers, "ages": self._ages(epoch)}

    def _births(self, positions: list[Tensor], epoch: int) -> list[Tensor]:
        births = [torch.full(places.shape, epoch, dtype=torch.int32) for places in positions]
        for number, (before, born) in enumerate(zip(self.positions, self.births, strict=True)):
            if before.numel():
                at = torch.searchsorted(before, positions[number]).clamp_(max=before.numel() - 1)
                births[number] = torch.where(before[at] == positions[number], born[at], births[number])
        return births

    def _ages(self, epoch: int) -> dict[str, Any]:
        edges = age_bins(epoch)
        starts = torch.tensor(edges, dtype=torch.int32)
        bins = [torch.bucketize(epoch - born, starts, right=True) - 1 for born in self.births]
        counts = [torch.bincount(found, minlength=len(edges)).tolist() for found in bins]
        return {"from": edges, "layers": counts, "since_start": [int((born == 0).sum()) for born in self.births]}

    def entries(self) -> list[Entry]:
        """What it holds between two looks, for the ledger of a run."""
        held = sum(tensor.numel() * tensor.element_size() for tensor in (*self.positions, *self.births))
        note = "K × 12 B: position and epoch of birth, for the records of a run that writes a folder"
        return [Entry("ages of connections", held, note)] if held else []

    def state(self) -> dict[str, list[Tensor]]:
        return {"positions": self.positions, "births": self.births}

    def load(self, stored: Any, epoch: int) -> None:
        """Take over what a checkpoint holds, if it can be of these layers and of epochs up to ``epoch``."""
        if not isinstance(stored, dict) or set(stored) != {"positions", "births"}:
            raise CheckpointError("what was seen of the wiring must be positions and births")
        positions, births = stored["positions"], stored["births"]
        if any(not isinstance(part, list) or len(part) not in (0, len(self.method.shapes)) for part in (positions, births)):
            raise CheckpointError(f"what was seen of the wiring must be of {len(self.method.shapes)} layers")
        shapes = self.method.shapes if positions else ()
        if not all(_fits(*given, epoch) for given in itertools.zip_longest(shapes, positions, births)):
            raise CheckpointError("what was seen of the wiring must be sorted positions and an epoch for each")
        self.positions, self.births = positions, births


def _fits(shape: LayerShape | None, places: Any, born: Any, epoch: int) -> bool:
    if shape is None or not isinstance(places, Tensor) or not isinstance(born, Tensor):
        return False
    if (places.dtype, born.dtype, places.dim()) != (torch.int64, torch.int32, 1) or places.shape != born.shape:
        return False
    if not places.numel():
        return True
    in_order = bool((places[1:] > places[:-1]).all()) and int(places[0]) >= 0 and int(places[-1]) < shape.possible
    return in_order and int(born.min()) >= 0 and int(born.max()) <= epoch
