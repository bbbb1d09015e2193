"""Convolutions in one to three dimensions, with K connections instead of a dense kernel.

The op convolves planes. One dimension is two of which the first has size 1. In three, the planes that one output plane
sees are channels: the weight [o, c, kz, ky, kx] is that of channel c · depth + kz, at its own column of the matrix."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound import ops
from wirebound.nn.inputs import settle_bias, settle_input, sparse_product
from wirebound.nn.options import WiringOptions
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.trace import by_operators, in_graph, one_node, recorded
from wirebound.nn.traced import is_watched, run_outside, traced_planes
from wirebound.ops import ConvWindow
from wirebound.ops.layout import LayerIndex, index_of
from wirebound.wiring import LayerShape

if TYPE_CHECKING:
    from typing_extensions import Unpack

Sizes = int | Sequence[int]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


def sizes(name: str, value: Sizes, dimensions: int, least: int) -> tuple[int, ...]:
    """One number for each dimension, of an argument that may be one for all."""
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    if len(given) == 1:
        given *= dimensions
    try:
        settled = tuple(operator.index(size) for size in given)
    except TypeError:
        settled = ()
    if len(settled) != dimensions or any(size < least for size in settled):
        raise ValueError(f"{name} (={value!r}) must be {dimensions} whole numbers >= {least}, or one for all")
    return settled


def require_channels(in_channels: int, out_channels: int, groups: int) -> None:
    if groups < 1:
        raise ValueError(f"groups (={groups}) must be >= 1")
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if channels < 1 or channels % groups:
            raise ValueError(f"{name} (={channels}) must be a multiple of groups (={groups}), and >= 1")


def settle_margins(
    padding: Sizes | str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """What padding adds before and after each dimension."""
    if not isinstance(padding, str):
        return [(size, size) for size in sizes("padding", padding, len(kernel), 0)]
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding != "same":
        raise ValueError(f"padding (={padding!r}) must be numbers, 'same' or 'valid'")
    if any(step != 1 for step in stride):
        raise ValueError(f"stride (={stride[0] if len(set(stride)) == 1 else stride!r}) must be 1 with padding='same'")
    total = [(size - 1) * gap for size, gap in zip(kernel, dilation, strict=True)]
    return [(size // 2, size - size // 2) for size in total]  # an even reach leaves one more, which torch puts after


def planar(channels: tuple[int, int], margins: Sequence[tuple[int, int]], groups: int, *numbers: Sequence[int]) -> ConvWindow:
    """The window of a convolution in one or two dimensions; ``numbers`` are kernel, stride and dilation."""
    kernel, stride, dilation = ((1, each[0]) if len(each) == 1 else (each[0], each[1]) for each in numbers)
    (top, bottom), (left, right) = margins if len(margins) == 2 else ((0, 0), margins[0])
    return ConvWindow(*channels, kernel, stride, (top, left), (bottom, right), dilation, groups)


def settle_window(
    dimensions: int, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes, padding: Sizes | str,
    dilation: Sizes, groups: int,
) -> ConvWindow:
    require_channels(in_channels, out_channels, groups)
    given = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    numbers = [sizes(name, value, dimensions, 1) for name, value in given.items()]
    return planar((in_channels, out_channels), settle_margins(padding, *numbers), groups, *numbers)


@dataclass
class ConvGradient:
    """Input and output gradient of one pass: the gradient of any weight is a product of the two (``GradientSource``)."""

    x: Tensor  # [batch, in_channels, height, width]
    dy: Tensor  # [batch, out_channels, height, width]
    window: ConvWindow

    def block(self, first: int, last: int) -> Tensor:
        window = self.window
        places = window.kernel[0] * window.kernel[1]
        low, high = first // places, -(-last // places)  # only the channels that these columns belong to
        batch, groups = self.x.shape[0], window.groups
        seen = self.x.unflatten(1, (groups, window.group_channels))[:, :, low:high].flatten(1, 2)
        patches = F.unfold(window.pad(seen), window.kernel, window.dilation, 0, window.stride)
        patches = patches.view(batch, groups, (high - low) * places, -1)
        patches = patches[:, :, first - low * places : last - low * places]
        dy = self.dy.reshape(batch, groups, window.out_channels // groups, -1)
        return torch.einsum("ngop,ngcp->goc", dy, patches).flatten(0, 1)

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        window = self.window
        n_in = window.group_channels * window.kernel[0] * window.kernel[1]
        index = index_of(rows, columns, n_in)  # as if these were the connections of the layer
        theta = self.dy.new_zeros(rows.numel())
        backward = ops.backend_of(theta).conv2d_backward
        return cast(Tensor, backward(self.x.detach(), self.dy, theta, index, window, False, True)[1])


class SparseConvNd(SparseLayer):
    """A torch convolution with exactly K connections, stored and computed as such.

    A connection is one weight of the kernel. In three dimensions each pass copies its input once for every kernel plane.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode: as in torch.
        options: connectivity, budget and the other fields of ``WiringOptions``.
    """

    dimensions: ClassVar[int]
    arguments: ClassVar[tuple[str, ...]] = (
        "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias", "padding_mode",
    )
    bias_sums = (0, 2, 3)  # what the gradient of the bias sums over
    padding: Any  # numbers, "same" or "valid"
    output_padding: tuple[int, ...] = ()  # of transposed convolutions
    window: ConvWindow  # of the planes that the op convolves

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes | str = 0,
        dilation: Sizes = 1, groups: int = 1, bias: bool = True, padding_mode: PaddingMode = "zeros",
        **options: "Unpack[WiringOptions]",
    ) -> None:
        super().__init__()
        if padding_mode not in get_args(PaddingMode):
            raise ValueError(f"padding_mode (={padding_mode!r}) must be one of {get_args(PaddingMode)}")
        count = self.dimensions
        self.padding_mode: PaddingMode = padding_mode
        self.stride = sizes("stride", stride, count, 1)
        self._set_kernel(in_channels, out_channels, kernel_size, dilation, groups)
        margins = settle_margins(padding, self.kernel_size, self.stride, self.dilation)
        self.padding = padding if isinstance(padding, str) else tuple(size for size, _ in margins)
        self._margins = tuple(size for pair in reversed(margins) for size in pair)  # in the order of F.pad
        # The op itself pads planes with zeros; everything else is padded first.
        self._pads_first = any(self._margins) and (count == 3 or padding_mode != "zeros")
        self._make(self.stride, [(0, 0)] * count if self._pads_first else margins, bias, options)

    def _set_kernel(self, in_channels: int, out_channels: int, kernel_size: Sizes, dilation: Sizes, groups: int) -> None:
        require_channels(in_channels, out_channels, groups)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = sizes("kernel_size", kernel_size, self.dimensions, 1)
        self.dilation = sizes("dilation", dilation, self.dimensions, 1)

    def _make(
        self, steps: tuple[int, ...], margins: Sequence[tuple[int, int]], bias: bool, options: WiringOptions
    ) -> None:
        depth = self.kernel_size[0] if self.dimensions == 3 else 1
        planes = slice(1, None) if self.dimensions == 3 else slice(None)
        numbers = (self.kernel_size[planes], steps[planes], self.dilation[planes])
        self._steps = steps
        self.window = planar((self.in_channels * depth, self.out_channels), margins[planes], self.groups, *numbers)
        # These names are in files.
        name = f"conv{self.dimensions}d" if self.dimensions < 3 and not self.output_padding else type(self).__name__
        n_in = self.in_channels // self.groups * math.prod(self.kernel_size)
        self.wire(LayerShape(name, self.out_channels, n_in), bias, options)

    @one_node
    def forward(self, x: Tensor) -> Tensor:
        recording = recorded(x, self.fast_wiring)
        if recording and in_graph(x):
            if is_watched(self.fast_wiring):
                return cast(Tensor, run_outside(self.forward, x))
            recording = False
        inputs = x if recording else self._batched(x)
        if self._pads_first or (recording and any(self._margins)):
            inputs = F.pad(inputs, self._margins, "constant" if self.padding_mode == "zeros" else self.padding_mode)
        if recording:
            convolve = (F.conv1d, F.conv2d, F.conv3d)[self.dimensions - 1]
            return cast(Tensor, by_operators(self, convolve, inputs, self.stride, 0, self.dilation, self.groups))
        y = self._convolve(inputs)
        return y if x.dim() == self.dimensions + 2 else y.squeeze(0)

    def _batched(self, x: Tensor) -> Tensor:
        """The input, checked, in the precision of the parameters, and with a batch dimension."""
        if not recorded(x, self.fast_wiring):  # else the operator's input is settled
            x = settle_input(x, self.fast_wiring.readable_theta(), self, pieces=True)
        if x.dim() not in (self.dimensions + 1, self.dimensions + 2):
            most = self.dimensions + 2
            what = f"the input (of shape {tuple(x.shape)})"
            raise ValueError(f"{what} must have {most} dimensions, or {most - 1} without a batch")
        channels = x.shape[-1 - self.dimensions]
        if channels != self.in_channels:
            raise ValueError(f"the channels of the input (={channels}) must be in_channels (={self.in_channels})")
        return x if x.dim() == self.dimensions + 2 else x.unsqueeze(0)

    def _convolve(self, x: Tensor) -> Tensor:
        """The convolution of [batch, channels, ...]; what the op does not pad is padded already."""
        for axis, (kernel, gap) in enumerate(zip(self.kernel_size, self.dilation, strict=True), -self.dimensions):
            size, reach = x.shape[axis], (kernel - 1) * gap + 1
            if self.dimensions < 3:
                size += self.window.before[axis] + self.window.after[axis]
            if size < reach:
                what = f"the padded input (={size} along axis {axis})"
                raise ValueError(f"{what} must be at least as large as the kernel (={reach} with its dilation)")
        if self.dimensions < 3:
            return self._convolve_planes(x) if self.dimensions == 2 else self._convolve_planes(x.unsqueeze(2)).squeeze(2)
        # [batch, channels, output depth, height, width, kernel depth]
        gap = self.dilation[0]
        seen = x.unfold(2, (self.kernel_size[0] - 1) * gap + 1, self._steps[0])[..., ::gap]
        planes = seen.permute(0, 2, 1, 5, 3, 4).flatten(2, 3).flatten(0, 1)
        return self._convolve_planes(planes).unflatten(0, (x.shape[0], seen.shape[2])).transpose(1, 2).contiguous()

    def _convolve_planes(self, x: Tensor) -> Tensor:
        if recorded(x, self.fast_wiring):
            return traced_planes(self, x)
        theta = self.fast_wiring.layer_theta(self.layer_id)
        bias = settle_bias(self.bias, theta, self.out_channels, self)
        return sparse_product(x, theta, bias, self)

    def op_forward(self, x: Tensor, theta: Tensor, index: LayerIndex, bias: Tensor | None) -> Tensor:
        return ops.backend_of(theta).conv2d_forward(x, theta, index, self.window, bias)

    def op_backward(
        self, x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, need_dx: bool, need_dtheta: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        return ops.backend_of(theta).conv2d_backward(x, dy, theta, index, self.window, need_dx, need_dtheta)

    def gradient_source(self, x: Tensor, dy: Tensor) -> ConvGradient:
        return ConvGradient(x, dy, self.window)

    def arranged(self, matrix: Tensor) -> Tensor:
        return matrix.view(self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        usual = {"padding": 0, "dilation": 1, "groups": 1, "padding_mode": "zeros", "output_padding": 0}
        for name, value in usual.items():
            given = getattr(self, name)
            if any(each != value for each in given) if isinstance(given, tuple) else given != value:
                parts.append(f"{name}={given!r}" if name == "padding" else f"{name}={given}")
        return ", ".join([*parts, f"bias={self.bias is not None}", self.repr_active()])


class SparseConv1d(SparseConvNd):
    """``nn.Conv1d`` with exactly K connections (arguments: ``SparseConvNd``)."""
    dimensions, dense_class = 1, nn.Conv1d


class SparseConv2d(SparseConvNd):
    """``nn.Conv2d`` with exactly K connections (arguments: ``SparseConvNd``)."""
    dimensions, dense_class = 2, nn.Conv2d


class SparseConv3d(SparseConvNd):
    """``nn.Conv3d`` with exactly K connections (arguments: ``SparseConvNd``)."""
    dimensions, dense_class = 3, nn.Conv3d
