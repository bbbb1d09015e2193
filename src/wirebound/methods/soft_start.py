"""How soft-DEEP R starts: the connections, weights and signs of a wiring, in matrices that are stored in full."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound import ops
from wirebound.methods.matrices import Matrix
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring import LayerShape
from wirebound.wiring.init import draw_positions, draw_theta


def constant_signs(matrices: Sequence[Matrix], geometry: Geometry, seed: int) -> list[Tensor]:
    """The constant sign of every possible connection, ±1, in the order of the parameters."""
    signs = []
    for matrix, start in zip(matrices, geometry.position_start, strict=False):
        weight = matrix.weight
        positions = start + torch.arange(matrix.budget, device=weight.device)
        negative = ops.negative_signs(positions, seed, 0)
        signs.append(_by_output(1 - 2 * negative.to(weight.dtype), matrix.shape))
    return signs


def first_theta(
    matrices: Sequence[Matrix],
    geometry: Geometry,
    counts: Sequence[int],
    theta_min: Sequence[float],
    seed: int,
    init: str,
    gain: float | Sequence[float],
) -> list[Tensor]:
    """The first θ of each matrix: |N(0, 1)|/√n_in where active, uniform in [θ_min, 0) where dormant."""
    device, dtype = matrices[0].weight.device, matrices[0].weight.dtype
    positions = draw_positions(geometry, counts, seed, 0, device)
    active = draw_theta(geometry, counts, seed, 0, init, gain, device, dtype)
    thetas, first = [], 0
    for number, (matrix, start) in enumerate(zip(matrices, geometry.position_start, strict=False)):
        # A uniform number is the share of the normal law below ν; kept above 0, which would be active.
        nu = ops.normals(seed, stream_of(Stream.OTHER, 0, layer=number), 0, matrix.budget, device)
        share = torch.special.ndtr(nu.double()).clamp_(min=2.0**-24)
        theta = (share * theta_min[number]).to(matrix.weight.dtype)
        last = first + counts[number]
        theta[positions[first:last] - start] = active[first:last].to(theta)
        thetas.append(_by_output(theta, matrix.shape))
        first = last
    return thetas


def _by_output(row: Tensor, shape: LayerShape) -> Tensor:
    """From the order of positions, down the columns, to that of a parameter, along the rows."""
    return row.view(shape.n_in, shape.n_out).t().reshape(-1).contiguous()
