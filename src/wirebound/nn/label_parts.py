"""Some outputs of a sparse layer as a layer of their own, so that the kernels compute those and nothing else.

Connections lie by input, so finding those of some outputs is one pass over all K; what is computed afterwards goes by the
connections that were found. Many outputs in a row, one part after another, are found by one sort.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wirebound import ops
from wirebound.nn.linear import LinearGradient
from wirebound.ops.layout import ROW_MASK, LayerIndex, pack

LOGITS_AT_A_TIME = 1 << 20
LEAST_LABELS_AT_A_TIME = 1024  # fewer cost more in calls than they save in memory


@dataclass(frozen=True)
class LabelPart:
    """The connections of some outputs, with these outputs counted from 0."""

    labels: Tensor  # sorted, int64
    places: Tensor  # of its connections among those of the layer
    index: LayerIndex

    def logits(self, x: Tensor, theta: Tensor, bias: Tensor | None) -> Tensor:
        """[batch, labels]; ``theta`` is that of the whole layer, ``bias`` that of these labels."""
        own = theta.index_select(0, self.places)
        return ops.backend_of(own).linear_forward(x, own, self.index, self.labels.numel(), bias)

    def backward(self, x: Tensor, dy: Tensor, theta: Tensor, need_dx: bool, dtheta: Tensor | None) -> Tensor | None:
        """The gradient to the input; that to θ is written into its places of ``dtheta``."""
        own = theta.index_select(0, self.places)
        backend = ops.backend_of(own)
        dx, found = backend.linear_backward(x, dy, own, self.index, need_dx, dtheta is not None)
        if dtheta is not None and found is not None:
            dtheta.index_copy_(0, self.places, found)
        return dx


def layer_arrays(layer: Any) -> tuple[Tensor, LayerIndex]:
    """θ of a layer as autograd sees it, and where it stands; on another device than the CPU, this waits for it."""
    wiring, number = layer.fast_wiring, layer.layer_id
    theta, index = wiring.layer_theta(number), wiring.layer_index(number)
    if wiring.is_whole and len(wiring.layers) > 1:
        start, end = wiring.bounds[number : number + 2]
        return theta[start:end], index._replace(start=start, end=end)
    return theta, index


def part_of(index: LayerIndex, labels: Tensor, n_out: int) -> LabelPart:
    """The part of these labels (sorted, distinct): O(K + n_out), of which n_out are bits of a mask."""
    packed_rows = index.layer_packed_rows()
    rows = packed_rows & ROW_MASK
    wanted = torch.zeros(n_out, dtype=torch.bool, device=rows.device)
    wanted[labels] = True
    places = wanted.index_select(0, rows).nonzero().view(-1)
    slots = torch.searchsorted(labels, rows[places].to(torch.int64))
    return _part(index, labels, places, pack(slots, packed_rows[places] < 0))


def parts_of(index: LayerIndex, n_out: int, chunk: int) -> Iterator[LabelPart]:
    """All labels, ``chunk`` at a time: one sort of K small numbers, kept in the order of the wiring within a part."""
    packed_rows, device = index.layer_packed_rows(), index.packed_rows.device
    keys = torch.div(packed_rows & ROW_MASK, chunk, rounding_mode="floor")
    if n_out <= 256 * chunk:
        keys = keys.to(torch.uint8)  # sorted twice as quickly
    keys, places = torch.sort(keys, stable=True)
    numbers = -(-n_out // chunk)
    ends = torch.searchsorted(keys, torch.arange(numbers, dtype=keys.dtype, device=device), right=True).tolist()
    start = 0
    for number, end in enumerate(ends):
        first = number * chunk
        labels, own = torch.arange(first, min(first + chunk, n_out), device=device), places[start:end]
        yield _part(index, labels, own, packed_rows[own] - first)  # the sign's bit stays as it is
        start = end


def _part(index: LayerIndex, labels: Tensor, places: Tensor, packed_rows: Tensor) -> LabelPart:
    colptr = torch.searchsorted(places, index.layer_colptr() - index.start)
    n_in = index.last - index.first
    return LabelPart(labels, places, LayerIndex(packed_rows, colptr, 0, places.numel(), 0, n_in, index.bound))


def labels_at_a_time(batch: int, n_out: int, chunk: int | None) -> int:
    if chunk is None:
        chunk = max(LEAST_LABELS_AT_A_TIME, LOGITS_AT_A_TIME // max(1, batch))
    elif isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"chunk (={chunk}) must be a whole number >= 1, or None")
    return max(1, min(chunk, n_out))


@dataclass
class LabelGradient:
    """What a backward pass through a part leaves behind (``GradientSource``): labels outside of it have no gradient."""

    x: Tensor  # [batch, n_in]
    dy: Tensor  # [batch, labels]
    labels: Tensor
    n_out: int

    def block(self, first: int, last: int) -> Tensor:
        found = self.dy.new_zeros(self.n_out, last - first)
        return found.index_copy_(0, self.labels, LinearGradient(self.x, self.dy).block(first, last))

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        slots = torch.searchsorted(self.labels, rows).clamp_(max=max(0, self.labels.numel() - 1))
        touched = (self.labels[slots] == rows).nonzero().view(-1)
        found = self.dy.new_zeros(rows.numel())
        return found.index_copy_(0, touched, LinearGradient(self.x, self.dy).at(slots[touched], columns[touched]))
