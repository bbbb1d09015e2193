"""Connections where inputs occur, for layers that are given sparse rows: which columns are open to newborns, and who moves.

Of a million hashed columns most never occur. A connection there is never judged, since no gradient reaches it, so it would
hold its part of the budget for good. Two rules keep the budget where inputs are:

    newborns come to columns that have occurred in a training pass, uniformly over the dormant positions of those
    in each rewiring step one in ``PART`` of the connections at columns that never occurred dies, until there is none

The first wiring, drawn over all columns, so moves to those that occur within the first few hundred steps, while these
become known; from then on all connections are at columns that occur.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layout import for_connections
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring import Wiring
from wirebound.wiring.occurring import SeenColumns

PART = 100


class Occurring:
    """The columns of one wiring that have occurred, as its layers note them."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._open: ops.OpenColumns | None = None
        self._settled: set[int] = set()  # layers that have no connection at a column that never occurred

    @property
    def seen(self) -> dict[int, SeenColumns]:
        return self.wiring.seen or {}

    def open_columns(self) -> ops.OpenColumns | None:
        """Where newborns may come to; None: anywhere. The same object while nothing new occurs."""
        seen = self.seen
        if not seen:
            return None
        columns = [seen[layer].columns if layer in seen else None for layer in range(len(self.wiring.layers))]
        known = self._open
        if known is None or any(a is not b for a, b in zip(known.columns, columns, strict=True)):
            known = self._open = ops.OpenColumns(self.wiring.geometry, columns)
        return known

    @torch.no_grad()
    def let_unseen_die_(self, step: int) -> None:
        """θ < 0 for some of the connections at columns that never occurred; the step then replaces them."""
        for layer, seen in self.seen.items():
            if layer not in self._settled:
                self._let_die_(layer, seen, step)

    def _let_die_(self, layer: int, seen: SeenColumns, step: int) -> None:
        wiring = self.wiring
        index = wiring.layer_index(layer)
        flags = for_connections(seen.flags, index.layer_colptr(), index.end - index.start)
        places = torch.nonzero(flags == 0).view(-1)
        if not places.numel():
            self._settled.add(layer)
            return
        room = seen.columns.numel() * wiring.layers[layer].n_out - (flags.numel() - places.numel())
        count = min(-(-places.numel() // PART), room)
        stream, device = stream_of(Stream.MOVED, wiring.index, layer=layer), places.device
        chosen = ops.backend_on(device).sample_sorted(places.numel(), count, wiring.seed, stream, step, device)
        wiring.theta[index.start + places[chosen]] = -1.0

    def state(self) -> list[Tensor]:
        """Of each layer a bit for each column; empty where inputs are not sparse."""
        nothing = torch.empty(0, dtype=torch.uint8)
        return [_bits(self.seen[i].flags) if i in self.seen else nothing for i in range(len(self.wiring.layers))]

    def check_state(self, state: Any) -> None:
        """Raise ``ValueError`` unless this is such a state."""
        sizes = [(layer.n_in + 7) // 8 for layer in self.wiring.layers]
        if not isinstance(state, list) or len(state) != len(sizes):
            raise ValueError(f"must be the columns of {len(sizes)} layers")
        for bits, size in zip(state, sizes, strict=True):
            if not isinstance(bits, Tensor) or bits.dtype is not torch.uint8 or bits.shape not in ((0,), (size,)):
                raise ValueError(f"must be {size} bytes of a layer, or none")

    def load(self, state: Sequence[Tensor]) -> None:
        self.check_state(state)
        seen = self.wiring.seen = {}
        for layer, bits in enumerate(state):
            if bits.numel():
                n_in = self.wiring.layers[layer].n_in
                own = seen[layer] = SeenColumns(n_in, self.wiring.theta.device)
                own.set(torch.nonzero(_flags(bits)[:n_in]).view(-1))
        self._settled.clear()
        self._open = None


_WEIGHTS = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)


def _bits(flags: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(flags.cpu(), (0, -flags.numel() % 8))
    return (padded.view(-1, 8) * _WEIGHTS).sum(1, dtype=torch.uint8)


def _flags(bits: Tensor) -> Tensor:
    return (bits.cpu().view(-1, 1) & _WEIGHTS).ne(0).view(-1)


def states(each: Sequence[Occurring]) -> dict[str, Any]:
    """What the state of a method holds of them: nothing unless some layer has sparse inputs."""
    return {"seen": [one.state() for one in each]} if any(one.seen for one in each) else {}


def check_states(each: Sequence[Occurring], state: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless what a state holds of them fits."""
    found = state.get("seen", [])
    if "seen" in state and (not isinstance(found, list) or len(found) != len(each)):
        raise ValueError(f"seen must be of {len(each)} wirings")
    for number, (one, own) in enumerate(zip(each, found, strict=False)):
        try:
            one.check_state(own)
        except ValueError as error:
            raise ValueError(f"seen/{number} {error}") from None
