"""Sparse linear layers on sparse rows of input in plain torch: O(meetings of a nonzero input and a connection)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from wirebound.ops.faults import BAD_INDEX, BAD_INPUT, raise_fault, require_active
from wirebound.ops.layer_shapes import CsrRows
from wirebound.ops.layout import LayerIndex, rows_of, signs_of

_MOST_MEETINGS = 1 << 22  # at a time


def _require_rows(rows: CsrRows, n_in: int) -> None:
    starts, columns = rows.starts, rows.columns
    if not starts.is_cpu:  # asking would wait for the device
        return
    inside = not columns.numel() or (int(columns.min()) >= 0 and int(columns.max()) < n_in)
    if int(starts[0]) != 0 or int(starts[-1]) != columns.numel() or bool((starts.diff() < 0).any()) or not inside:
        raise_fault(BAD_INPUT)


def _meetings(rows: CsrRows, index: LayerIndex, connections: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Which nonzero (among all of the batch) meets which connection (of the layer), some at a time and in their order."""
    begin = index.colptr[index.first + rows.columns] - index.start
    counts = index.colptr[index.first + rows.columns + 1] - index.start - begin
    if counts.is_cpu and counts.numel():
        fine = int(begin.min()) >= 0 and int(counts.min()) >= 0 and int((begin + counts).max()) <= connections
        if not fine:
            raise_fault(BAD_INDEX)
    before = counts.cumsum(0) - counts
    total, first = int(counts.sum()), 0
    while first < counts.numel() and total:
        until = int(before[first]) + _MOST_MEETINGS
        last = max(first + 1, int(torch.searchsorted(before, until)))
        own = torch.arange(first, last, device=counts.device)
        nonzero = torch.repeat_interleave(own, counts[first:last])
        number = torch.arange(nonzero.numel(), device=counts.device) - (before[nonzero] - before[first])
        yield nonzero, begin[nonzero] + number
        first = last


class ReferenceCsr:
    def csr_forward(self, rows: CsrRows, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None) -> Tensor:
        """y = x Wᵀ + bias for sparse rows x; ``linear_forward`` of the same rows written out."""
        require_active(theta, index.bound)
        _require_rows(rows, index.last - index.first)
        batch, weight = rows.batch, theta * signs_of(index.layer_packed_rows(), theta.dtype)
        heights, sample = rows_of(index.layer_packed_rows()), rows.sample_of()
        y = rows.values.new_zeros(batch * n_out)
        for nonzero, connection in _meetings(rows, index, theta.numel()):
            places = sample[nonzero] * n_out + heights[connection]
            y.index_add_(0, places, rows.values[nonzero] * weight[connection])
        y = y.view(batch, n_out)
        return y if bias is None else y + bias

    def csr_backward(
        self, rows: CsrRows, dy: Tensor, theta: Tensor, index: LayerIndex, need_dtheta: bool, seen: Tensor | None
    ) -> tuple[Tensor | None, int]:
        """The gradient to θ, None if not needed, and how many columns are new in ``seen`` (a byte for each, 1 where a value
        was ever not 0), in which those of these rows are noted."""
        _require_rows(rows, index.last - index.first)
        new = 0
        if seen is not None:
            before = int(seen.sum())
            seen[rows.columns[rows.values != 0]] = 1
            new = int(seen.sum()) - before
        if not need_dtheta:
            return None, new
        dtheta, sample = torch.zeros_like(theta), rows.sample_of()
        packed_rows = index.layer_packed_rows()
        heights, signs = rows_of(packed_rows), signs_of(packed_rows, theta.dtype)
        for nonzero, connection in _meetings(rows, index, theta.numel()):
            upstream = dy[sample[nonzero], heights[connection]]
            dtheta.index_add_(0, connection, rows.values[nonzero] * upstream * signs[connection])
        return dtheta, new
