"""The invariant of a wiring: exactly K distinct, sorted, valid connections, θ finite and at its sign, constraints kept.

``Wiring.check``, state dicts and checkpoint files all ask here. Kernels index memory by these arrays, so nothing
trusts a number before it is checked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layout import Geometry, rows_of
from wirebound.wiring.constraints import constraint_fault


def index_fault(geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> str | None:
    """What is wrong with the positions of ``budget`` connections in matrices of these shapes, or None."""
    expected = (("packed_rows", packed_rows, torch.int32, budget), ("colptr", colptr, torch.int64, geometry.column_start[-1] + 1))
    for name, array, dtype, length in expected:
        if array.dtype is not dtype or array.shape != (length,):
            return f"{name} must be {dtype} of length {length}, is {array.dtype} of shape {tuple(array.shape)}"
    same = packed_rows.device == colptr.device
    if same and ops.backend_on(colptr.device).index_is_good(geometry, budget, packed_rows, colptr):
        return None  # a pass without memory of its own; what follows takes some, and says what is wrong
    # The bounds first: differences of numbers near 2^63 would wrap around and look right.
    rise = f"column pointers must rise from 0 to the budget (={budget})"
    if bool(((colptr < 0) | (colptr > budget)).any()) or int(colptr[0]) != 0 or int(colptr[-1]) != budget:
        return rise
    counts = colptr[1:] - colptr[:-1]
    if (falls := torch.nonzero(counts < 0)).numel():
        return f"{rise} and must never fall, but fall at column {int(falls[0])}"
    device, rows = packed_rows.device, rows_of(packed_rows)
    heights = torch.tensor(geometry.n_out, device=device).repeat_interleave(torch.tensor(geometry.n_in, device=device))
    outside = torch.nonzero(rows >= torch.repeat_interleave(heights, counts, output_size=budget))
    if outside.numel():
        return f"a row (={int(rows[outside[0]])} at index {int(outside[0])}) must be inside of its layer"
    positions = geometry.positions(packed_rows, colptr)
    wrong = torch.nonzero(positions[1:] <= positions[:-1])
    if wrong.numel():
        return f"connections must be distinct and sorted by position, are not at index {int(wrong[0]) + 1}"
    return None


def wiring_fault(
    geometry: Geometry,
    theta: Tensor,
    packed_rows: Tensor,
    colptr: Tensor,
    sign_bound: bool,
    alive: Tensor | None = None,
    fan_caps: Tensor | None = None,
    column_signs: Tensor | None = None,
) -> str | None:
    """What is wrong with the arrays of a wiring, or None."""
    budget = theta.numel()
    fault = index_fault(geometry, budget, packed_rows, colptr)
    if fault:
        return fault
    bad = torch.nonzero(~torch.isfinite(theta))
    if bad.numel():
        return f"θ must be finite, {bad.numel()} are not, the first at index {int(bad[0])}"
    if alive is not None and (alive.shape != theta.shape or alive.dtype != torch.bool):
        return f"alive must be {budget} truth values, is {alive.dtype} of shape {tuple(alive.shape)}"
    if sign_bound and (lost := int((theta < 0).sum())):
        return f"exactly K (={budget}) connections must be active, {lost} have θ < 0"
    if alive is not None and (heavy := int((theta[~alive] != 0).sum())):
        return f"an empty place must have θ = 0, {heavy} have not"
    fault = constraint_fault(geometry, packed_rows, colptr, sign_bound, fan_caps, column_signs)
    if fault is None and not sign_bound and bool((packed_rows < 0).any()):
        return "packed_rows must hold no signs where θ holds them"
    return fault
