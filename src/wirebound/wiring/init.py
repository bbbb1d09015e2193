"""Where the first connections are and how strong: drawn without replacement, O(K), nothing dense."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layout import Geometry, pack
from wirebound.ops.philox import Stream, stream_of

_CHUNK = 1 << 16  # positions at a time: larger pieces of scratch stay with the allocator
INITS = ("dense-fan-in", "sparse-fan-in")


def draw_positions(
    geometry: Geometry, counts: Sequence[int], seed: int, wiring_index: int, device: torch.device
) -> Tensor:
    """``counts[i]`` positions in layer i, every subset equally likely, sorted through all layers."""
    parts = []
    for i, (count, size, start) in enumerate(
        zip(counts, geometry.sizes, geometry.position_start, strict=False)
    ):
        stream = stream_of(Stream.POSITIONS, wiring_index, layer=i)
        parts.append(ops.sample_sorted(size, count, seed, stream, 0, device).add_(start))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def build_index(geometry: Geometry, positions: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """(packed_rows, colptr) of sorted positions, a chunk at a time: the scratch must not outweigh the wiring."""
    packed_rows = torch.empty(positions.numel(), dtype=torch.int32, device=positions.device)
    colptr = torch.zeros(geometry.column_start[-1] + 1, dtype=torch.int64, device=positions.device)
    for start in range(0, positions.numel(), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        columns, rows = geometry.locate(positions[chunk])
        packed_rows[chunk] = pack(rows, negative[chunk])
        first = int(columns[0])
        counts = torch.bincount(columns - first)
        colptr[first + 1 : first + 1 + counts.numel()] += counts
    return packed_rows, torch.cumsum(colptr, 0, out=colptr)


def draw_theta(
    geometry: Geometry,
    counts: Sequence[int],
    seed: int,
    wiring_index: int,
    init: str,
    gain: float | Sequence[float],
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """θ = gain · |N(0, 1)| / √fan-in. With a random sign this is the paper's N(0, 1)/√n_in.

    ``dense-fan-in``: n_in, the columns of the matrix, as in the paper. ``sparse-fan-in``: the mean number of
    connections that a row really has, which keeps the variance of activities from shrinking with connectivity. The gain
    may be one for each layer.
    """
    if init not in INITS:
        raise ValueError(f"init (={init!r}) must be one of {INITS}")
    gains = gain if isinstance(gain, Sequence) else [gain] * len(counts)
    if len(gains) != len(counts):
        raise ValueError(f"gain has {len(gains)} values for {len(counts)} layers")
    parts = []
    for i, (count, rows, columns) in enumerate(zip(counts, geometry.n_out, geometry.n_in, strict=True)):
        fan_in = columns if init == "dense-fan-in" else max(1.0, count / max(1, rows))
        stream = stream_of(Stream.WEIGHTS, wiring_index, layer=i)
        nu = ops.normals(seed, stream, 0, count, device).to(dtype)
        parts.append(nu.abs_().mul_(gains[i] / math.sqrt(fan_in)))
    return parts[0] if len(parts) == 1 else torch.cat(parts)
