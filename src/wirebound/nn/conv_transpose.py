"""Transposed convolutions in one to three dimensions, with K connections instead of a dense kernel.

One of stride s is an ordinary one of stride 1 with s - 1 zeros between inputs, run from the ends of input and output."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn.conv import PaddingMode, Sizes, SparseConvNd, sizes
from wirebound.nn.options import WiringOptions
from wirebound.nn.sparse_layer import Matrix, SparseLayer
from wirebound.nn.trace import by_operators, in_graph, one_node, recorded
from wirebound.nn.traced import is_watched, run_outside

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SparseConvTransposeNd(SparseConvNd):
    """A transposed convolution of torch with exactly K connections; each pass holds the stretched input.

    A row is an output channel, a column an input channel and a place in the kernel.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation: as in torch.
        padding_mode: must be ``"zeros"``, as in torch.
        options: connectivity, budget and the other fields of ``WiringOptions``.
    """

    arguments = (*SparseConvNd.arguments, "output_padding")

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes = 0,
        output_padding: Sizes = 0, groups: int = 1, bias: bool = True, dilation: Sizes = 1,
        padding_mode: PaddingMode = "zeros", **options: "Unpack[WiringOptions]",
    ) -> None:
        SparseLayer.__init__(self)
        if padding_mode != "zeros":
            raise ValueError(f"padding_mode (={padding_mode!r}) must be 'zeros' in a transposed convolution")
        count = self.dimensions
        self.padding_mode = padding_mode
        self._set_kernel(in_channels, out_channels, kernel_size, dilation, groups)
        self.stride, self.padding = sizes("stride", stride, count, 1), sizes("padding", padding, count, 0)
        self.output_padding = sizes("output_padding", output_padding, count, 0)
        for extra, step, gap in zip(self.output_padding, self.stride, self.dilation, strict=True):
            if extra >= max(step, gap):
                limits = f"stride (={stride!r}) or dilation (={dilation!r})"
                raise ValueError(f"output_padding (={output_padding!r}) must be smaller than {limits}")
        self._make((1,) * count, [(0, 0)] * count, bias, options)

    @classmethod
    def matrices_of(cls, dense: Any) -> list[Matrix]:
        n_in = dense.weight.numel() // max(1, dense.out_channels)
        return [Matrix("", dense.weight, dense.out_channels, n_in, lambda weight: as_matrix(weight, dense.groups))]

    @one_node
    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """As torch's layer: ``output_size`` chooses among the sizes that the stride leaves open."""
        recording = recorded(input, self.fast_wiring)
        graph = recording and in_graph(input)
        if graph and is_watched(self.fast_wiring):
            return cast(Tensor, run_outside(self.forward, input, output_size))
        if recording and not graph:
            convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.dimensions - 1]
            rest = (self.stride, self.padding, self._extra(input, output_size), self.groups, self.dilation)
            return cast(Tensor, by_operators(self, convolve, input, *rest))
        x = self._batched(input)
        extra, axes = self._extra(x, output_size), list(range(2, 2 + self.dimensions))
        stretched = x.flip(axes)
        if any(step > 1 for step in self.stride):
            spread = [(size - 1) * step + 1 for size, step in zip(x.shape[2:], self.stride, strict=True)]
            near, stretched = stretched, x.new_zeros(*x.shape[:2], *spread)
            stretched[tuple(slice(None, None, step) for step in (1, 1, *self.stride))] = near
        margins = []  # in the order of F.pad; negative where padding takes more off than the kernel adds
        for axis in reversed(range(self.dimensions)):
            around = (self.kernel_size[axis] - 1) * self.dilation[axis] - self.padding[axis]
            margins += [around + extra[axis], around]
        y = self._convolve(F.pad(stretched, margins) if any(margins) else stretched).flip(axes)
        return y if input.dim() == self.dimensions + 2 else y.squeeze(0)

    def _extra(self, x: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """The output padding, or the one that leads to this size."""
        if output_size is None:
            return self.output_padding
        wanted = tuple(output_size)[-self.dimensions :]
        numbers = zip(x.shape[-self.dimensions :], self.stride, self.padding, self.kernel_size, self.dilation, strict=True)
        least = [(size - 1) * step - 2 * around + (kernel - 1) * gap + 1 for size, step, around, kernel, gap in numbers]
        most = [size + step - 1 for size, step in zip(least, self.stride, strict=True)]
        if len(wanted) != len(least) or not all(a <= size <= b for a, size, b in zip(least, wanted, most, strict=True)):
            raise ValueError(f"output_size (={list(output_size)}) must be between {least} and {most} for this input")
        return tuple(size - low for size, low in zip(wanted, least, strict=True))

    @SparseLayer.weight.getter  # type: ignore[attr-defined, untyped-decorator]
    def weight(self) -> Tensor:
        """As in other layers; with several groups it is made at once, since no view of the matrix has torch's order."""
        return super().weight if self.groups == 1 else self.plain_weight()

    def arranged(self, matrix: Tensor) -> Tensor:
        ins, outs = self.in_channels // self.groups, self.out_channels // self.groups
        return matrix.view(self.groups, outs, ins, *self.kernel_size).transpose(1, 2).flatten(0, 1)


def as_matrix(weight: Tensor, groups: int) -> Tensor:
    """Torch's weight [in_channels, out_channels / groups, ...] as [out_channels, in_channels / groups · places]."""
    return weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flatten(1)


class SparseConvTranspose1d(SparseConvTransposeNd):
    """``nn.ConvTranspose1d`` with exactly K connections (arguments: ``SparseConvTransposeNd``)."""
    dimensions, dense_class = 1, nn.ConvTranspose1d


class SparseConvTranspose2d(SparseConvTransposeNd):
    """``nn.ConvTranspose2d`` with exactly K connections (arguments: ``SparseConvTransposeNd``)."""
    dimensions, dense_class = 2, nn.ConvTranspose2d


class SparseConvTranspose3d(SparseConvTransposeNd):
    """``nn.ConvTranspose3d`` with exactly K connections (arguments: ``SparseConvTransposeNd``)."""
    dimensions, dense_class = 3, nn.ConvTranspose3d
