"""``SparseConv3d``: ``nn.Conv3d`` with K connections instead of a dense kernel."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn.conv import _MODES, PaddingMode
from wirebound.nn.conv_padded import PaddedConv
from wirebound.nn.trace import one_node, recorded, volume_by_operators
from wirebound.nn.window import Sizes, same_margins, sizes


class SparseConv3d(PaddedConv):
    """``nn.Conv3d`` with exactly K connections, stored and computed as such.

    Each pass copies its input once for every plane of the kernel.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode: as in
            ``nn.Conv3d``.
        options: connectivity, budget, seed, init, device, dtype, wiring, part and owner, as in ``SparseConv2d``.
    """

    dimensions = 3

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        **options: Any,
    ) -> None:
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode (={padding_mode!r}) must be one of {_MODES}")
        kernel, gaps = sizes("kernel_size", kernel_size, 3, 1), sizes("dilation", dilation, 3, 1)
        steps = sizes("stride", stride, 3, 1)
        super().__init__(in_channels, out_channels, kernel, steps, gaps, groups, bias, **options)
        self.stride, self.padding_mode = steps, padding_mode
        self.padding = padding if isinstance(padding, str) else sizes("padding", padding, 3, 0)
        if padding == "same" and steps != (1, 1, 1):
            raise ValueError(f"stride (={stride!r}) must be 1 with padding='same'")
        if not isinstance(self.padding, str):
            ends = [(size, size) for size in self.padding]
        elif padding in ("same", "valid"):
            ends = same_margins(kernel, gaps) if padding == "same" else [(0, 0)] * 3
        else:
            raise ValueError(f"padding (={padding!r}) must be numbers, 'same' or 'valid'")
        self._margins = tuple(size for pair in reversed(ends) for size in pair)

    @one_node
    def forward(self, x: Tensor) -> Tensor:
        if recorded(x):
            return volume_by_operators(self, x)
        inputs = self.batched(x)
        if any(self._margins):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            inputs = F.pad(inputs, self._margins, mode=mode)
        y = self.convolve(inputs)
        return y if x.dim() == 5 else y.squeeze(0)

    def arranged(self, matrix: Tensor) -> Tensor:
        return matrix.view(self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def dense_twin(self) -> nn.Conv3d:
        theta = self.wiring.theta
        twin = nn.Conv3d(
            self.in_channels,
            self.out_channels,
            cast(Any, self.kernel_size),
            cast(Any, self.stride),
            cast(Any, self.padding),
            cast(Any, self.dilation),
            self.groups,
            self.bias is not None,
            self.padding_mode,
            device=theta.device,
            dtype=theta.dtype,
        )
        with torch.no_grad():
            twin.weight.copy_(self.dense_weight())
            if self.bias is not None and twin.bias is not None:
                twin.bias.copy_(self.bias)
        return twin

    def extra_repr(self) -> str:
        mode = [] if self.padding_mode == "zeros" else [f"padding_mode={self.padding_mode}"]
        return ", ".join([*self.repr_parts(self.stride, self.padding), *mode])
