"""Large pieces of memory that are used again, once the last tensor on them is gone: the system clears every new page, which
for what a recurrent layer keeps between forward and backward takes longer than a quarter of the arithmetic.
"""

import weakref

import torch
from torch import Tensor

LARGE_PAGE = 2 << 20  # bytes; smaller pieces are left to torch
MOST = 256 << 20  # bytes that are held
_spare: dict[int, Tensor] = {}  # by address: whoever pops a piece has it alone, also beside other Python threads


def _give_back(piece: Tensor) -> None:
    if held() + piece.numel() <= MOST:
        _spare[piece.data_ptr()] = piece


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
    start = -piece.data_ptr() % LARGE_PAGE  # from the start of a large page on (csrc/scratch.h, prefer_large_pages)
    memory = piece.numpy()[start : start + piece.numel() - LARGE_PAGE]  # torch holds it for as long as a tensor needs it
    weakref.finalize(memory, _give_back, piece).atexit = False
    return torch.from_numpy(memory)[:wanted].view(like.dtype)
