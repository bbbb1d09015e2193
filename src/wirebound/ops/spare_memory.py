"""Large pieces of memory that are used again, once the last tensor on them is gone: the system clears every new page, which
for what a recurrent layer keeps between forward and backward takes longer than a quarter of the arithmetic.
"""

import weakref

import torch
from torch import Tensor

LARGE_PAGE = 2 << 20  # bytes; smaller pieces are left to torch
MOST = 512 << 20  # bytes that are held
_spare: dict[int, Tensor] = {}  # by address: whoever pops a piece has it alone, also beside other Python threads


def _give_back(piece: Tensor) -> None:
    if piece.numel() > MOST:
        return
    _spare[piece.data_ptr()] = piece
    for at, _ in _by_size():  # of too much the smallest go: larger ones stand in for them
        if held() <= MOST:
            return
        _spare.pop(at, None)


def _by_size() -> list[tuple[int, Tensor]]:
    return sorted(list(_spare.items()), key=lambda item: item[1].numel())


def held() -> int:
    """Bytes of the pieces that wait for their next use."""
    return sum(piece.numel() for piece in list(_spare.values()))


def take(like: Tensor, count: int) -> Tensor:
    """Room for so many numbers of the dtype of ``like``, on the CPU, with undefined content."""
    wanted = count * like.element_size()
    if wanted < LARGE_PAGE:
        return like.new_empty(count)
    pieces = _by_size()
    for at, piece in pieces:  # the smallest that is large enough, however large: sequences differ in length from batch to batch
        if piece.numel() - LARGE_PAGE >= wanted and _spare.pop(at, None) is not None:
            break
    else:
        if pieces:  # a new one takes the place of the largest: there are never more than were needed at the same time
            _spare.pop(pieces[-1][0], None)
        piece = torch.empty(-wanted % LARGE_PAGE + wanted + LARGE_PAGE, dtype=torch.uint8, device="cpu")
    start = -piece.data_ptr() % LARGE_PAGE  # from the start of a large page on (csrc/scratch.h, prefer_large_pages)
    memory = piece.numpy()[start : start + piece.numel() - LARGE_PAGE]  # torch holds it for as long as a tensor needs it
    weakref.finalize(memory, _give_back, piece).atexit = False
    return torch.from_numpy(memory)[:wanted].view(like.dtype)
