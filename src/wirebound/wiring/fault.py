"""What may be wrong with a wiring: the invariant, as ``Wiring.check`` states it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wirebound.ops.layout import rows_of
from wirebound.wiring.constraints import constraint_fault

if TYPE_CHECKING:
    from wirebound.wiring.wiring import Wiring


def find_fault(wiring: Wiring) -> str | None:
    """What is wrong with a wiring, or None."""
    theta, code, colptr = wiring.theta.detach(), wiring.code, wiring.colptr
    budget, columns = wiring.budget, wiring.geometry.column_start[-1]
    if code.shape != (budget,) or colptr.shape != (columns + 1,):
        return f"arrays must be {budget} and {columns + 1} long, are {tuple(code.shape)} and {tuple(colptr.shape)}"
    counts = colptr[1:] - colptr[:-1]
    if int(colptr[0]) != 0 or int(colptr[-1]) != budget or bool((counts < 0).any()):
        return f"column pointers must rise from 0 to the budget (={budget})"
    rows = rows_of(code)
    heights = torch.repeat_interleave(
        torch.tensor(wiring.geometry.n_out, device=code.device),
        torch.tensor(wiring.geometry.n_in, device=code.device),
    )
    height = torch.repeat_interleave(heights, counts, output_size=budget)
    if bool((rows >= height).any()):
        return "a connection has a row outside of its layer"
    positions = wiring.positions()
    if bool((positions[1:] <= positions[:-1]).any()):
        return "connections must be distinct and sorted by position"
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
        wiring.geometry, code, colptr, wiring.sign_bound, wiring.fan_caps, wiring.column_signs
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
