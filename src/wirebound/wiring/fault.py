"""What may be wrong with a wiring: the invariant, as ``Wiring.check`` states it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layout import Geometry, rows_of
from wirebound.wiring.constraints import constraint_fault

if TYPE_CHECKING:
    from wirebound.wiring.wiring import Wiring


def index_fault(geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> str | None:
    """What is wrong with the positions of ``budget`` connections in matrices of these shapes, or None.

    Kernels index memory by them, so nothing here trusts a number before it is checked.
    """
    columns = geometry.column_start[-1]
    for name, array, dtype, length in (("packed_rows", packed_rows, torch.int32, budget), ("colptr", colptr, torch.int64, columns + 1)):
        if array.dtype is not dtype or array.shape != (length,):
            return f"{name} must be {dtype} of length {length}, is {array.dtype} of shape {tuple(array.shape)}"
    if ops.index_is_good(geometry, budget, packed_rows, colptr):
        return None  # a pass without memory of its own; what follows takes some, and says what is wrong
    # The bounds first: differences of numbers near 2^63 would wrap around and look right.
    if bool(((colptr < 0) | (colptr > budget)).any()) or int(colptr[0]) != 0 or int(colptr[-1]) != budget:
        return f"column pointers must rise from 0 to the budget (={budget})"
    counts = colptr[1:] - colptr[:-1]
    if bool((counts < 0).any()):
        return f"column pointers must rise from 0 to the budget (={budget})"
    rows = rows_of(packed_rows)
    heights = torch.repeat_interleave(
        torch.tensor(geometry.n_out, device=packed_rows.device), torch.tensor(geometry.n_in, device=packed_rows.device)
    )
    if bool((rows >= torch.repeat_interleave(heights, counts, output_size=budget)).any()):
        return "a connection has a row outside of its layer"
    positions = geometry.positions(packed_rows, colptr)
    if bool((positions[1:] <= positions[:-1]).any()):
        return "connections must be distinct and sorted by position"
    return None


def find_fault(wiring: Wiring) -> str | None:
    """What is wrong with a wiring, or None."""
    theta, packed_rows, colptr, budget = wiring.theta.detach(), wiring.packed_rows, wiring.colptr, wiring.budget
    fault = index_fault(wiring.geometry, budget, packed_rows, colptr)
    if fault:
        return fault
    ends = colptr[torch.tensor(wiring.geometry.column_start, device=colptr.device)].tolist()
    if wiring.bounds != ends:
        return f"the layers must start where the column pointers say ({ends}), not at {wiring.bounds}"
    bad = torch.nonzero(~torch.isfinite(theta)).view(-1)
    if bad.numel():
        return f"θ must be finite, {bad.numel()} are not, the first at index {int(bad[0])}"
    if wiring.alive is not None:
        fault = _empty_fault(theta, wiring.alive)
        if fault:
            return fault
    elif wiring.sign_bound and wiring.active != budget:
        lost = int((theta < 0).sum())
        return f"exactly K (={budget}) connections must be active, {lost} have θ < 0"
    return constraint_fault(
        wiring.geometry, packed_rows, colptr, wiring.sign_bound, wiring.fan_caps, wiring.column_signs
    )


def _empty_fault(theta: Tensor, alive: Tensor) -> str | None:
    """What is wrong with a wiring that keeps places empty: at most K are active, the others weigh nothing."""
    if alive.shape != theta.shape or alive.dtype != torch.bool:
        return f"alive must be {theta.numel()} truth values, is {alive.dtype} of shape {tuple(alive.shape)}"
    lost = int((theta < 0).sum())
    if lost:
        return f"every θ must be >= 0, {lost} are not"
    heavy = int((theta[~alive] != 0).sum())
    return f"an empty place must have θ = 0, {heavy} have not" if heavy else None
