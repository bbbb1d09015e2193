"""From parameter to weight: w = s θ for an active connection (θ >= 0), w = 0 for a dormant one."""

from __future__ import annotations

import torch
from torch import Tensor

from wirebound.ops.layout import rows_of, signs_of


def weights(theta: Tensor, code: Tensor) -> Tensor:
    """w = s θ for each stored connection."""
    return theta * signs_of(code, theta.dtype)


def scatter(theta: Tensor, code: Tensor, colptr: Tensor, n_out: int, n_in: int) -> Tensor:
    """The dense matrix [n_out, n_in] with these connections in it. Dense by nature: for export and for tests."""
    columns = torch.repeat_interleave(
        torch.arange(n_in, device=code.device), colptr[1:] - colptr[:-1], output_size=code.numel()
    )
    dense = theta.new_zeros(n_out, n_in)
    dense[rows_of(code), columns] = weights(theta, code)
    return dense
