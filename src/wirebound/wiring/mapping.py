"""From parameter to weight: w = s θ for an active connection (θ >= 0), w = 0 for a dormant one."""

import torch
from torch import Tensor

from wirebound.ops.faults import BAD_INDEX, raise_fault
from wirebound.ops.layout import for_connections, rows_of, signs_of


def weights(theta: Tensor, packed_rows: Tensor) -> Tensor:
    return theta * signs_of(packed_rows, theta.dtype)


def scatter(theta: Tensor, packed_rows: Tensor, colptr: Tensor, n_out: int, n_in: int) -> Tensor:
    """The dense matrix [n_out, n_in] with these connections in it. Dense by nature: for export and for tests."""
    columns = for_connections(torch.arange(n_in, device=packed_rows.device), colptr, packed_rows.numel())
    dense = theta.new_zeros(n_out, n_in)
    try:
        dense[rows_of(packed_rows), columns] = weights(theta, packed_rows)
    except IndexError:
        raise_fault(BAD_INDEX)
    return dense
