"""Random numbers by the C++ kernels, under the signatures of ``philox.py``, for tensors on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from wirebound.ops import library
from wirebound.ops.faults import raise_fault
from wirebound.ops.philox import Stream, stream_of

_LIBRARY = library.load()


def normals(seed: int, stream: int, step: int, count: int, device: torch.device, first: int = 0) -> Tensor:
    out = torch.empty(count, dtype=torch.float32, device="cpu")
    assert _LIBRARY is not None
    _LIBRARY.wb_normals(seed, stream, step, first, count, out.data_ptr())
    return out


def negative_signs(positions: Tensor, seed: int, wiring_index: int) -> Tensor:
    signs = torch.empty(positions.numel(), dtype=torch.int8, device="cpu")
    assert _LIBRARY is not None
    positions = positions.contiguous()
    stream = stream_of(Stream.SIGN, wiring_index)
    _LIBRARY.wb_signs(seed, stream, positions.data_ptr(), positions.numel(), signs.data_ptr())
    return signs < 0


def sample_sorted(n: int, k: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
    if not 0 <= k <= n:
        raise ValueError(f"k (={k}) must be in [0, n (={n})]")
    out = torch.empty(k, dtype=torch.int64, device="cpu")
    assert _LIBRARY is not None
    status = _LIBRARY.wb_sample_sorted(n, k, seed, stream, step, out.data_ptr())
    if status:
        raise_fault(status)
    return out
