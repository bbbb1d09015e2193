"""How a convolution looks at its input: kernel, stride, padding, dilation and groups as plain numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor


class ConvWindow(NamedTuple):
    """The shape of a sparse convolution, height before width everywhere.

    Its matrix has ``out_channels`` rows and in_channels/groups · kernel height · kernel width columns; column
    (c · kernel height + ky) · kernel width + kx of row o is the weight [o, c, ky, kx] of the dense convolution.
    """

    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]  # zeros above and to the left of the input
    after: tuple[int, int]  # and below and to the right
    dilation: tuple[int, int]
    groups: int

    @property
    def group_channels(self) -> int:
        """Input channels that one output channel sees."""
        return self.in_channels // self.groups

    def reach(self, axis: int) -> int:
        """Inputs from the first to the last that one output sees."""
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def out_size(self, size: int, axis: int) -> int:
        """Outputs along an axis of ``size`` inputs; below 1 if the kernel does not fit."""
        return (size + self.before[axis] + self.after[axis] - self.reach(axis)) // self.stride[axis] + 1

    def margins(self, height: int, width: int) -> tuple[int, int, int, int]:
        """The padding that makes an input exactly as large as its outputs see it, in the order of ``F.pad``.

        Negative where the last rows or columns are seen by no output.
        """
        margins = []
        for axis, size in ((1, width), (0, height)):
            seen = (self.out_size(size, axis) - 1) * self.stride[axis] + self.reach(axis)
            margins += [self.before[axis], seen - size - self.before[axis]]
        return margins[0], margins[1], margins[2], margins[3]

    def pad(self, x: Tensor) -> Tensor:
        """The input exactly as its outputs see it."""
        return F.pad(x, self.margins(x.shape[-2], x.shape[-1]))
