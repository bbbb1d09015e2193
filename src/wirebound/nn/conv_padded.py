"""What ``SparseConv3d`` and the transposed convolutions share: a sparse convolution of inputs that are padded already.

All of it is done by the op for two dimensions. One dimension is two of which the first has size 1. In three, the planes
that one output plane sees lie behind each other as channels: the weight [o, c, kz, ky, kx] of the dense convolution is
then that of channel c · depth + kz of the plane, at the very column where it is in the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from wirebound.nn.conv import _SparseConv
from wirebound.nn.inputs import settle_bias, settle_input
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.window import require_channels
from wirebound.ops import ConvWindow
from wirebound.ops.faults import DormantThetaError
from wirebound.wiring import LayerShape, Wiring, settle_budget


class PaddedConv(SparseLayer):
    """A sparse convolution in up to three dimensions, without padding.

    Args:
        steps: the stride of the convolution.
        connectivity, budget, seed, init, wiring, part: as in ``SparseConv2d``.
    """

    dimensions: int
    window: ConvWindow  # of the planes
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        steps: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
        bias: bool,
        *,
        connectivity: float | None = None,
        budget: int | None = None,
        seed: int = 0,
        init: str = "dense-fan-in",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        wiring: Wiring | None = None,
        part: int = 0,
        owner: bool = True,
    ) -> None:
        super().__init__()
        require_channels(in_channels, out_channels, groups)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.dilation = kernel_size, dilation
        # (depth, height, width), 1 where the layer has fewer.
        (depth, *kernel), (step, *stride), (gap, *gaps) = (
            (*(1,) * (3 - self.dimensions), *sizes) for sizes in (kernel_size, steps, dilation)
        )
        self._depth, self._step, self._gap = depth, step, gap
        none = (0, 0)
        self.window = ConvWindow(
            in_channels * depth,
            out_channels,
            (kernel[0], kernel[1]),
            (stride[0], stride[1]),
            none,
            none,
            (gaps[0], gaps[1]),
            groups,
        )
        n_in = in_channels // groups * math.prod(kernel_size)
        if wiring is None:
            count = settle_budget(connectivity, budget, out_channels * n_in)
            shape = LayerShape(type(self).__name__, out_channels, n_in)
            wiring = Wiring([shape], [count], seed=seed, init=init, device=device, dtype=dtype)
        found = wiring.layers[part]
        if (found.n_out, found.n_in) != (out_channels, n_in):
            raise ValueError(
                f"part {part} of the wiring (={found.n_out} × {found.n_in}) must be the matrix of the layer "
                f"(={out_channels} × {n_in})"
            )
        theta = wiring.theta
        self.bias = nn.Parameter(torch.zeros(out_channels, device=theta.device, dtype=theta.dtype)) if bias else None
        self.attach(wiring, part, owner=owner)

    def batched(self, x: Tensor) -> Tensor:
        """The input, checked, in the precision of the parameters, and with a batch dimension."""
        x = settle_input(x, self.fast_wiring.theta, self)
        if x.dim() not in (self.dimensions + 1, self.dimensions + 2):
            raise ValueError(
                f"the input (of shape {tuple(x.shape)}) must have {self.dimensions + 2} dimensions, "
                f"or {self.dimensions + 1} without a batch"
            )
        channels = x.shape[-1 - self.dimensions]
        if channels != self.in_channels:
            raise ValueError(f"the channels of the input (={channels}) must be in_channels (={self.in_channels})")
        return x if x.dim() == self.dimensions + 2 else x.unsqueeze(0)

    def convolve(self, x: Tensor) -> Tensor:
        """The convolution of a padded input [batch, channels, ...]."""
        for axis, (kernel, gap) in enumerate(zip(self.kernel_size, self.dilation, strict=True)):
            size, reach = x.shape[2 + axis], (kernel - 1) * gap + 1
            if size < reach:
                raise ValueError(
                    f"the padded input (={size} along axis {axis - self.dimensions}) must be at least as large as the "
                    f"kernel (={reach} with its dilation)"
                )
        if self.dimensions == 1:
            return self._convolve_planes(x.unsqueeze(2)).squeeze(2)
        if self.dimensions == 2:
            return self._convolve_planes(x)
        # [batch, channels, output depth, height, width, kernel depth]
        seen = x.unfold(2, (self._depth - 1) * self._gap + 1, self._step)[..., :: self._gap]
        planes = seen.permute(0, 2, 1, 5, 3, 4).flatten(2, 3).flatten(0, 1)
        y = self._convolve_planes(planes).unflatten(0, (x.shape[0], seen.shape[2]))
        return y.transpose(1, 2).contiguous()

    def _convolve_planes(self, x: Tensor) -> Tensor:
        theta = self.fast_wiring.layer_theta(self.part)
        bias = None if self.bias is None else settle_bias(self.bias, theta, self.out_channels, self)
        try:
            return cast(Tensor, _SparseConv.apply(x, theta, bias, self))
        except DormantThetaError:
            return cast(Tensor, _SparseConv.apply(x, self.fast_wiring.dormant_as_zero(theta), bias, self))

    def repr_parts(self, stride: Sequence[int], padding: Sequence[int] | str) -> list[str]:
        """What ``extra_repr`` of all these layers says."""
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={stride}"]
        if isinstance(padding, str) or any(padding):
            parts.append(f"padding={padding!r}")
        if any(size != 1 for size in self.dilation):
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        possible = self.wiring.layers[self.part].possible
        return [*parts, f"bias={self.bias is not None}", f"active={self.active} ({100 * self.active / possible:.3g} %)"]
