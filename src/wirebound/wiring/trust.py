"""The invariant of a wiring (exactly K distinct, sorted, valid connections, θ finite and at its sign, constraints kept),
and whether tensors are still those that were checked: kernels index memory by these arrays.

A parameter or buffer can be exchanged, get another storage (``p.data = ...``), or be written in place. Object, address
and version tell all three. Writing through ``p.data`` in place is invisible: the kernels look for what that may spoil.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from wirebound import ops
from wirebound.ops.layout import Geometry, rows_of
from wirebound.wiring.constraints import constraint_fault

_WHOLE = "use DistributedDataParallel (wb.distributed.wrap)"


def version_of(tensor: Tensor) -> int | None:
    """How often a tensor was written in place; None, which equals no version, where torch does not count."""
    return None if tensor.is_inference() else tensor._version


class IndexKey(NamedTuple):
    """The arrays of positions as they were when they were checked."""

    packed_rows: Tensor
    colptr: Tensor
    addresses: tuple[int, int]
    versions: tuple[int, int]

    @staticmethod
    def of(packed_rows: Tensor, colptr: Tensor, before: "IndexKey | None" = None) -> "IndexKey | None":
        """None where torch does not count writes, or another process may write: then they are checked in every use.

        Memory that was not shared in ``before``, an earlier key, is not now: asking takes longer than a small step.
        """
        if packed_rows.is_inference() or colptr.is_inference():
            return None
        addresses = (packed_rows.data_ptr(), colptr.data_ptr())
        known = before is not None and addresses == before.addresses
        if not known and (packed_rows.is_shared() or colptr.is_shared()):
            return None
        return IndexKey(packed_rows, colptr, addresses, (packed_rows._version, colptr._version))

    def holds(self, packed_rows: Tensor | None, colptr: Tensor | None) -> bool:
        rows, pointers, (rows_at, pointers_at), (rows_version, pointers_version) = self
        if packed_rows is not rows or colptr is not pointers:
            return False
        written = packed_rows._version != rows_version or colptr._version != pointers_version
        return not written and packed_rows.data_ptr() == rows_at and colptr.data_ptr() == pointers_at


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is what it looks like: numbers in memory, not a stand-in that a dispatcher takes apart."""
    kind = type(tensor)
    plain = kind is Tensor or kind is nn.Parameter
    return plain or getattr(kind, "__torch_dispatch__", None) is torch._C._disabled_torch_dispatch_impl


def theta_fault(theta: Tensor | None, packed_rows: Tensor | None) -> str | None:
    if theta is None:
        return f"its parameter θ is gone, as FSDP or pruning take it. A wiring cannot be sharded: {_WHOLE}"
    if not is_plain(theta):
        what = f"its parameter θ is a {type(theta).__name__}, which kernels cannot read"
        return f"{what}: a wiring cannot be sharded or be fake; {_WHOLE}"
    if packed_rows is None or theta.shape != packed_rows.shape:
        held = None if packed_rows is None else tuple(packed_rows.shape)
        return f"θ has shape {tuple(theta.shape)}, its positions {held}: θ must be whole and cannot be sharded (FSDP); {_WHOLE}"
    if theta.device != packed_rows.device:
        return f"θ is on {theta.device}, its positions on {packed_rows.device}: move the whole model"
    if theta.layout is not torch.strided or not theta.is_contiguous():
        strides = theta.stride() if theta.layout is torch.strided else None
        return f"θ must be contiguous, is {theta.layout} with strides {strides}"
    if theta.is_neg() or (theta.numel() and not theta.data_ptr()):
        return "θ has no numbers in memory: its storage was freed, as sharding does, or they are still to be computed"
    return None if theta.is_floating_point() else f"θ must be floating point, is {theta.dtype}"


def index_fault(geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> str | None:
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
    if (outside := torch.nonzero(rows >= torch.repeat_interleave(heights, counts, output_size=budget))).numel():
        return f"a row (={int(rows[outside[0]])} at index {int(outside[0])}) must be inside of its layer"
    positions = geometry.positions(packed_rows, colptr)
    if (wrong := torch.nonzero(positions[1:] <= positions[:-1])).numel():
        return f"connections must be distinct and sorted by position, are not at index {int(wrong[0]) + 1}"
    return None


def wiring_fault(
    geometry: Geometry, theta: Tensor, packed_rows: Tensor, colptr: Tensor, sign_bound: bool,
    alive: Tensor | None = None, fan_caps: Tensor | None = None, column_signs: Tensor | None = None,
) -> str | None:
    budget = theta.numel()
    if fault := index_fault(geometry, budget, packed_rows, colptr):
        return fault
    if (bad := torch.nonzero(~torch.isfinite(theta))).numel():
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
