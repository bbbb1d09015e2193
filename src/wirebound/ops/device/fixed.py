"""Selections whose sizes are known beforehand: a device that had to say how many it found would be waited for.

Lists are as long as they can get; behind what is in use stands ``NOTHING``, which is larger than every position, so that
lists stay sorted.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

NOTHING = (1 << 62) + 1


def front(mask: Tensor, values: Tensor, size: int, fill: int = NOTHING) -> Tensor:
    """The values where ``mask`` is true, in their order, in an array of ``size``; behind them ``fill``."""
    place = torch.where(mask, mask.cumsum(0) - 1, size).clamp(max=size)
    return values.new_full((size + 1,), fill).scatter_(0, place, values)[:size]


def places_of(mask: Tensor, size: int) -> Tensor:
    """Sorted places where ``mask`` is true, which are ``size``."""
    return front(mask, torch.arange(mask.numel(), device=mask.device), size, 0)


def mask_of(places: Tensor, size: int) -> Tensor:
    """Whether each of ``size`` places is among these."""
    return torch.zeros(size, dtype=torch.bool, device=places.device).scatter_(0, places, True)


def before(counts: Tensor) -> Tensor:
    """For each of a row of counts the sum of those before it."""
    return counts.cumsum(0) - counts


def counted_before(mask: Tensor, edges: Tensor) -> Tensor:
    """How many are true before each of these places."""
    return F.pad(mask.cumsum(0), (1, 0))[edges]


def smallest(values: Tensor, count: int) -> Tensor:
    """Sorted indices of the ``count`` smallest values; among equal ones the first come first."""
    return values.sort(stable=True).indices[:count].sort().values


def smallest_of_each(values: Tensor, group: Tensor, first: Tensor, count: int) -> Tensor:
    """Sorted indices of the smallest ``first`` values where ``group`` is true and, of ``count`` in all, of the others."""
    order = values.sort(stable=True).indices
    grouped = group[order]
    rank = torch.where(grouped, grouped.cumsum(0), (~grouped).cumsum(0))
    chosen = rank <= torch.where(grouped, first, count - first)
    return front(chosen, order, count, 0).sort().values
