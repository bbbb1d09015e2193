"""How long the sequences of a padded batch are, from whatever says so."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence


def settle_lengths(x: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Steps of each sequence of x [time, batch, features], int64 on the CPU; None where all have all of them."""
    steps, batch = x.shape[:2]
    if lengths is None and mask is None:
        return None
    if lengths is not None and mask is not None:
        raise ValueError("at most one of lengths and mask may be given")
    if mask is not None:
        if mask.dtype is not torch.bool or tuple(mask.shape) != (batch, steps):
            raise ValueError(
                f"mask (={mask.dtype}, shape {tuple(mask.shape)}) must be boolean of shape (batch, time) = {(batch, steps)}"
            )
        if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            raise ValueError("mask must be true up to each sequence's end and false beyond: gaps are not supported")
        settled = mask.sum(1)
    else:
        settled = torch.as_tensor(lengths)
        if settled.is_floating_point() or settled.dtype is torch.bool or tuple(settled.shape) != (batch,):
            raise ValueError(
                f"lengths (={settled.dtype}, shape {tuple(settled.shape)}) must be whole numbers of shape (batch,) = {(batch,)}"
            )
    settled = settled.detach().to("cpu", torch.int64).contiguous()
    if batch:
        shortest, longest = int(settled.min()), int(settled.max())
        if shortest < 0 or longest > steps:
            raise ValueError(f"lengths (from {shortest} to {longest}) must be in [0, {steps}], the steps of the input")
        if shortest == steps:
            return None
    return settled


def packed_like(y: Tensor, packed: PackedSequence, lengths: Tensor, batch_first: bool) -> PackedSequence:
    """Outputs [time, batch, features], or [batch, time, features], in the shape in which their input came."""
    order = packed.sorted_indices
    if order is not None:
        y, lengths = y.index_select(0 if batch_first else 1, order), lengths[order.cpu()]
    data = pack_padded_sequence(y, lengths, batch_first).data
    return PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)
