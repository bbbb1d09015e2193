"""Whether tensors are still those that were checked: what is derived from a tensor belongs to that very tensor.

A parameter or buffer can be exchanged (``functional_call``, ``load_state_dict(assign=True)``), get another storage
(``p.data = ...``), or be written in place (``copy_``, a broadcast). Object, address and version tell all three; the object is
held, so that its address cannot be given to another. Writing through ``p.data`` in place is invisible here: the kernels
look for what that may have spoilt.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

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
    def of(packed_rows: Tensor, colptr: Tensor, before: IndexKey | None = None) -> IndexKey | None:
        """None where torch does not count how often they are written, or another process may write them: then they are
        checked in every use. ``before`` is an earlier key: asking whether memory is shared takes longer than a small
        step, and memory that was not stays so."""
        if packed_rows.is_inference() or colptr.is_inference():
            return None
        addresses = (packed_rows.data_ptr(), colptr.data_ptr())
        known = before is not None and addresses == before.addresses
        if not known and (packed_rows.is_shared() or colptr.is_shared()):
            return None
        return IndexKey(packed_rows, colptr, addresses, (packed_rows._version, colptr._version))

    def holds(self, packed_rows: Tensor | None, colptr: Tensor | None) -> bool:
        """Whether these are the same arrays, unchanged."""
        return (
            packed_rows is self.packed_rows
            and colptr is self.colptr
            and (packed_rows._version, colptr._version) == self.versions
            and (packed_rows.data_ptr(), colptr.data_ptr()) == self.addresses
        )


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is what it looks like: numbers in memory, not a stand-in that a dispatcher takes apart."""
    kind = type(tensor)
    if kind is Tensor or kind is nn.Parameter:
        return True
    return getattr(kind, "__torch_dispatch__", None) is torch._C._disabled_torch_dispatch_impl


def theta_fault(theta: Tensor | None, packed_rows: Tensor | None) -> str | None:
    """Why a tensor cannot take the place of θ, or None."""
    if theta is None:
        return f"its parameter θ is gone, as FSDP or pruning take it. A wiring cannot be sharded: {_WHOLE}"
    if not is_plain(theta):
        kind = type(theta).__name__
        return f"its parameter θ is a {kind}, which kernels cannot read: a wiring cannot be sharded or be fake; {_WHOLE}"
    if packed_rows is None or theta.shape != packed_rows.shape:
        held = None if packed_rows is None else tuple(packed_rows.shape)
        return f"θ has shape {tuple(theta.shape)}, its positions {held}: θ must be whole and cannot be sharded; {_WHOLE}"
    if theta.device != packed_rows.device:
        return f"θ is on {theta.device}, its positions on {packed_rows.device}: move the whole model"
    if theta.layout is not torch.strided or not theta.is_contiguous():
        return f"θ must be contiguous, is {theta.layout} with strides {theta.stride() if theta.layout is torch.strided else None}"
    if theta.is_neg() or (theta.numel() and not theta.data_ptr()):
        return "θ has no numbers in memory: its storage was freed, as sharding does, or they are still to be computed"
    return None if theta.is_floating_point() else f"θ must be floating point, is {theta.dtype}"
