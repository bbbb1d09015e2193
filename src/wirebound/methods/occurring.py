"""Connections where inputs are, for layers that are given sparse rows.

Of a million hashed columns a step has a few thousand. Two rules keep the budget where inputs are:

    newborns come to columns that are present in this step, uniformly over the dormant positions of those
    in each rewiring step one in ``PART`` of the connections at columns that were never present dies, until there is none

By the first, an input that is there in a share p of all steps is drawn for p times as often as one that is always there. Its
connections are judged, and so die, in those steps only: births and deaths keep their balance (``docs/theory.md``), which
births over all columns that were ever seen would shift to inputs that are rarely there. By the second, the first wiring,
which is drawn over all columns, moves to those that occur within the first few hundred steps, while these become known.
From then on every connection is at an input that occurs, since all are born there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from wirebound import ops
from wirebound.methods.grow.gradient import several_ranks
from wirebound.ops.device.steps import refuse_open_columns
from wirebound.ops.layout import for_connections
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring import Wiring
from wirebound.wiring.occurring import SeenColumns

PART = 100
# The gradient that says "judged" where it is 0 although the input was there, as at a unit that is closed: so small that it moves
# nothing, and upwards, so that α = 0 kills nobody.
JUDGED = 1e-30


class Occurring:
    """The columns of one wiring that are present, or ever were, as its layers note them."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._settled: set[int] = set()  # layers that have no connection at a column that was never present

    @property
    def seen(self) -> dict[int, SeenColumns]:
        return self.wiring.seen or {}

    def open_columns(self) -> ops.OpenColumns | None:
        """Where newborns of this step may come to; None: anywhere."""
        if not (seen := self.seen):
            return None
        columns = [seen[i].present() if i in seen else None for i in range(len(self.wiring.layers))]
        return ops.OpenColumns(self.wiring.geometry, columns)

    @torch.no_grad()
    def before_step_(self, step: int, *, rewires: bool, uphill: bool) -> None:
        """Let all ranks know what each has seen; then θ < 0 for some of the connections at columns that were never present,
        which the step replaces; and mark all those as judged whose input is there."""
        if self.seen and self.wiring.is_whole:
            refuse_open_columns()
        for layer, seen in sorted(self.seen.items()):
            if several_ranks():
                present = torch.zeros_like(seen.flags)
                present[seen.present()] = 1
                dist.all_reduce(present, op=dist.ReduceOp.MAX)
                seen.forget_present()
                seen.add_flags(present)
            if rewires and layer not in self._settled:
                self._let_die_(layer, seen, step)
            self._mark_judged_(layer, seen, uphill)

    def _mark_judged_(self, layer: int, seen: SeenColumns, uphill: bool) -> None:
        """Where an input is there and the gradient 0, make it ``JUDGED``."""
        index, grad = self.wiring.layer_index(layer), self.wiring.theta.grad
        assert grad is not None
        columns = index.first + seen.present()
        begin = index.colptr[columns]
        counts = index.colptr[columns + 1] - begin
        total = int(counts.sum())
        places = torch.repeat_interleave(begin - (counts.cumsum(0) - counts), counts, output_size=total)
        places += torch.arange(total, device=places.device)
        found = grad[places]
        grad[places] = torch.where(found == 0, JUDGED if uphill else -JUDGED, found)

    def _let_die_(self, layer: int, seen: SeenColumns, step: int) -> None:
        wiring = self.wiring
        index = wiring.layer_index(layer)
        flags = for_connections(seen.flags, index.layer_colptr(), index.end - index.start)
        places = torch.nonzero(flags == 0).view(-1)
        if not places.numel():
            self._settled.add(layer)
            return
        columns = index.first + seen.present()
        taken = int((index.colptr[columns + 1] - index.colptr[columns]).sum())
        count = min(-(-places.numel() // PART), columns.numel() * wiring.layers[layer].n_out - taken)
        stream, device = stream_of(Stream.MOVED, wiring.index, layer=layer), places.device
        chosen = ops.backend_on(device).sample_sorted(places.numel(), count, wiring.seed, stream, step, device)
        wiring.theta[index.start + places[chosen]] = -1.0

    def forget_present(self) -> None:
        for seen in self.seen.values():
            seen.forget_present()

    def state(self) -> list[Tensor]:
        """Of each layer a bit for each column that was ever present; empty where inputs are not sparse."""
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
        if self.wiring.seen is None:  # the method is not lazy
            return
        seen = self.wiring.seen = {}
        for layer, bits in enumerate(state):
            if bits.numel():
                n_in = self.wiring.layers[layer].n_in
                own = seen[layer] = SeenColumns(n_in, self.wiring.theta.device)
                own.set(torch.nonzero(_flags(bits)[:n_in]).view(-1))
        self._settled.clear()


_WEIGHTS = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device="cpu")


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
