"""Whether the arrays of a file are a wiring, before anything is built on them: kernels index memory by them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.layout import Geometry, rows_of
from wirebound.wiring.constraints import constraint_fault

ARRAYS = ("theta", "packed_rows", "colptr", "initial_counts", "identity", "sign_bound")
OPTIONAL = ("alive", "fan_caps", "column_signs")  # of wirings that keep places empty, or whose neurons have caps or signs


def wiring_fault(geometry: Geometry, arrays: Mapping[str, Tensor]) -> str | None:
    """What is wrong with the arrays of a wiring over matrices of these shapes, or None.

    Their shapes and dtypes are known to be those of a wiring. Nothing here trusts a number before it is checked.
    """
    theta, packed_rows, colptr = arrays["theta"], arrays["packed_rows"], arrays["colptr"]
    budget = theta.numel()
    fault = _pointer_fault(colptr, budget) or _row_fault(geometry, packed_rows, colptr)
    if fault:
        return fault
    bad = torch.nonzero(~torch.isfinite(theta)).view(-1)
    if bad.numel():
        return f"theta must be finite, {bad.numel()} of {budget} are not, the first at index {int(bad[0])}"
    if bool(arrays["sign_bound"]):
        negative = int((theta < 0).sum())
        if negative:
            return f"exactly K (={budget}) connections must be active, {negative} have theta < 0"
    elif bool((packed_rows < 0).any()):
        return "packed_rows must hold no signs where theta holds them"
    alive = arrays.get("alive")
    if alive is not None and bool((theta[~alive] != 0).any()):
        return "theta must be 0 in places that are empty"
    kept = (arrays.get("fan_caps"), arrays.get("column_signs"))
    fault = constraint_fault(geometry, packed_rows, colptr, bool(arrays["sign_bound"]), *kept)
    if fault:
        return fault
    return _origin_fault(geometry, arrays["initial_counts"], arrays["identity"], budget)


def _pointer_fault(colptr: Tensor, budget: int) -> str | None:
    # The bounds first: differences of numbers near 2^63 would wrap around and look right.
    if bool(((colptr < 0) | (colptr > budget)).any()) or int(colptr[0]) != 0 or int(colptr[-1]) != budget:
        return f"colptr must rise from 0 to K (={budget})"
    falls = torch.nonzero(colptr[1:] < colptr[:-1]).view(-1)
    return f"colptr must never fall, falls at column {int(falls[0])}" if falls.numel() else None


def _row_fault(geometry: Geometry, packed_rows: Tensor, colptr: Tensor) -> str | None:
    counts, rows = colptr[1:] - colptr[:-1], rows_of(packed_rows)
    heights = torch.repeat_interleave(torch.tensor(geometry.n_out), torch.tensor(geometry.n_in))
    outside = torch.nonzero(rows >= torch.repeat_interleave(heights, counts, output_size=packed_rows.numel())).view(-1)
    if outside.numel():
        return f"a row (={int(rows[outside[0]])} at index {int(outside[0])}) must be inside of its layer"
    # Within a column rows must rise; a column's first connection follows on nothing.
    rises = rows[1:] > rows[:-1]
    firsts = colptr[1:-1]
    firsts = firsts[(firsts > 0) & (firsts < packed_rows.numel())]
    rises[firsts - 1] = True
    wrong = torch.nonzero(~rises).view(-1)
    if wrong.numel():
        return f"connections must be distinct and sorted by position, are not at index {int(wrong[0]) + 1}"
    return None


def _origin_fault(geometry: Geometry, initial: Tensor, identity: Tensor, budget: int) -> str | None:
    counts = initial.tolist()
    if sum(counts) != budget or any(not 0 <= n <= size for n, size in zip(counts, geometry.sizes, strict=True)):
        return f"initial_counts must be connections of each layer that sum up to K (={budget})"
    seed, index = identity.tolist()
    if seed < 0 or not 0 <= index < philox.MAX_WIRINGS:
        return f"identity (=({seed}, {index})) must be a seed >= 0 and a number below {philox.MAX_WIRINGS}"
    return None
