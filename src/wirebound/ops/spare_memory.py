"""Large pieces of memory that are used again: the system clears every new page, which for what a recurrent layer keeps
between forward and backward takes longer than a quarter of the arithmetic.

A piece comes back by itself when the last tensor on it is gone. Few are held, and no more than ``MOST`` bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGE_PAGE = 2 << 20  # bytes; smaller pieces are left to torch
MOST = 256 << 20
_spare: dict[int, Tensor] = {}  # by address: whoever pops a piece has it alone, also beside other Python threads


class _Loan:
    """A piece that is in use; numpy holds this object for as long as a tensor needs the memory."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # From the start of a large page on (csrc/scratch.h, prefer_large_pages).
        start = -self.memory.data_ptr() % LARGE_PAGE
        size = self.memory.numel() - LARGE_PAGE
        return {"data": (self.memory.data_ptr() + start, False), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if held() + self.memory.numel() <= MOST:
            _spare[self.memory.data_ptr()] = self.memory


def held() -> int:
    """Bytes of the pieces that wait for their next use."""
    return sum(piece.numel() for piece in list(_spare.values()))


def take(like: Tensor, count: int) -> Tensor:
    """Room for so many numbers of the dtype of ``like``, on the CPU, with undefined content."""
    wanted = count * like.element_size()
    if wanted < LARGE_PAGE:
        return like.new_empty(count)
    for at, piece in list(_spare.items()):
        if wanted <= piece.numel() - LARGE_PAGE <= 2 * wanted and _spare.pop(at, None) is not None:
            break
    else:
        _spare.clear()  # of other sizes: whoever needed them has probably moved on
        piece = torch.empty(-wanted % LARGE_PAGE + wanted + LARGE_PAGE, dtype=torch.uint8, device="cpu")
    return torch.from_numpy(np.asarray(_Loan(piece)))[:wanted].view(like.dtype)
