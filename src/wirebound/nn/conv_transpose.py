"""``SparseConvTranspose1d``, ``2d`` and ``3d``: transposed convolutions with K connections instead of a dense kernel.

A transposed convolution of stride s is an ordinary one of stride 1 whose input has s - 1 zeros between its neighbours,
and which runs through input and output from their ends. A row is an output channel and a column an input channel and a
place in the kernel, so that fan-in and fan-out mean what they mean elsewhere. Each pass holds the stretched input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn.conv_padded import PaddedConv
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.trace import one_node, recorded, transposed_by_operators
from wirebound.nn.window import Sizes, sizes


def as_matrix(weight: Tensor, groups: int) -> Tensor:
    """The weight [in_channels, out_channels / groups, ...] of torch's layer as the wiring counts it:
    [out_channels, in_channels / groups · places]."""
    return weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flatten(1)


class SparseConvTransposeNd(PaddedConv):
    """What the transposed convolutions share.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation: as in torch;
            ``padding_mode`` must be ``"zeros"``, as there.
        options: connectivity, budget, seed, init, device, dtype, wiring, part and owner, as in ``SparseConv2d``.
    """

    dense_class: ClassVar[Any]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        **options: Any,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f"padding_mode (={padding_mode!r}) must be 'zeros' in a transposed convolution")
        count = self.dimensions
        kernel, gaps = sizes("kernel_size", kernel_size, count, 1), sizes("dilation", dilation, count, 1)
        super().__init__(in_channels, out_channels, kernel, (1,) * count, gaps, groups, bias, **options)
        self.padding_mode = padding_mode
        self.stride, self.padding = sizes("stride", stride, count, 1), sizes("padding", padding, count, 0)
        self.output_padding = sizes("output_padding", output_padding, count, 0)
        for extra, step, gap in zip(self.output_padding, self.stride, gaps, strict=True):
            if extra >= max(step, gap):
                raise ValueError(
                    f"output_padding (={output_padding!r}) must be smaller than stride (={stride!r}) or dilation "
                    f"(={dilation!r})"
                )

    @one_node
    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """As torch's layer: ``output_size`` chooses among the sizes that the stride leaves open."""
        if recorded(input):
            return transposed_by_operators(self, input, self._extra(input, output_size))
        x = self.batched(input)
        extra = self._extra(x, output_size)
        axes = list(range(2, 2 + self.dimensions))
        stretched = x.flip(axes)
        if any(step > 1 for step in self.stride):
            spread = [(size - 1) * step + 1 for size, step in zip(x.shape[2:], self.stride, strict=True)]
            apart = tuple(slice(None, None, step) for step in (1, 1, *self.stride))
            near, stretched = stretched, x.new_zeros(*x.shape[:2], *spread)
            stretched[apart] = near
        margins = []  # in the order of F.pad; negative where padding takes more off than the kernel adds
        for axis in reversed(range(self.dimensions)):
            around = (self.kernel_size[axis] - 1) * self.dilation[axis] - self.padding[axis]
            margins += [around + extra[axis], around]
        y = self.convolve(F.pad(stretched, margins) if any(margins) else stretched).flip(axes)
        return y if input.dim() == self.dimensions + 2 else y.squeeze(0)

    def _extra(self, x: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """The output padding, or the one that leads to this size."""
        if output_size is None:
            return self.output_padding
        wanted = tuple(output_size)[-self.dimensions :]
        reach = [(size - 1) * gap + 1 for size, gap in zip(self.kernel_size, self.dilation, strict=True)]
        least = [
            (size - 1) * step - 2 * around + seen
            for size, step, around, seen in zip(x.shape[-self.dimensions :], self.stride, self.padding, reach, strict=True)
        ]
        most = [size + step - 1 for size, step in zip(least, self.stride, strict=True)]
        fits = len(wanted) == self.dimensions and all(
            low <= size <= high for low, size, high in zip(least, wanted, most, strict=True)
        )
        if not fits:
            raise ValueError(f"output_size (={list(output_size)}) must be between {least} and {most} for this input")
        return tuple(size - low for size, low in zip(wanted, least, strict=True))

    @SparseLayer.weight.getter  # type: ignore[attr-defined, untyped-decorator]
    def weight(self) -> Tensor:
        """As in other layers; with several groups it is made at once, since no view of the matrix has torch's order."""
        return super().weight if self.groups == 1 else self.plain_weight()

    def arranged(self, matrix: Tensor) -> Tensor:
        ins, outs = self.in_channels // self.groups, self.out_channels // self.groups
        return matrix.view(self.groups, outs, ins, *self.kernel_size).transpose(1, 2).flatten(0, 1)

    def dense_twin(self) -> nn.Module:
        theta = self.wiring.theta
        twin = self.dense_class(
            self.in_channels,
            self.out_channels,
            self.kernel_size,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.bias is not None,
            self.dilation,
            device=theta.device,
            dtype=theta.dtype,
        )
        with torch.no_grad():
            twin.weight.copy_(self.dense_weight())
            if self.bias is not None:
                twin.bias.copy_(self.bias)
        return cast(nn.Module, twin)

    def extra_repr(self) -> str:
        extra = [f"output_padding={self.output_padding}"] if any(self.output_padding) else []
        return ", ".join([*self.repr_parts(self.stride, self.padding), *extra])


class SparseConvTranspose1d(SparseConvTransposeNd):
    """``nn.ConvTranspose1d`` with exactly K connections (arguments: ``SparseConvTransposeNd``)."""

    dimensions = 1
    dense_class = nn.ConvTranspose1d


class SparseConvTranspose2d(SparseConvTransposeNd):
    """``nn.ConvTranspose2d`` with exactly K connections (arguments: ``SparseConvTransposeNd``)."""

    dimensions = 2
    dense_class = nn.ConvTranspose2d


class SparseConvTranspose3d(SparseConvTransposeNd):
    """``nn.ConvTranspose3d`` with exactly K connections (arguments: ``SparseConvTransposeNd``)."""

    dimensions = 3
    dense_class = nn.ConvTranspose3d
