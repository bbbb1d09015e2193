"""``SparseConv2d`` and ``SparseConv1d``: convolutions with K connections instead of a dense kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound import ops
from wirebound.nn.inputs import require_kept, settle_bias, settle_gradient, settle_input
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.trace import conv_by_operators, recorded
from wirebound.nn.window import Sizes, settle_window
from wirebound.ops import ConvWindow
from wirebound.ops.faults import DormantThetaError
from wirebound.wiring import LayerShape, Wiring, settle_budget

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
_MODES = ("zeros", "reflect", "replicate", "circular")


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


class _SparseConv(torch.autograd.Function):
    """Exact gradients to the input, to θ at the active positions, and to the bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, theta: Tensor, bias: Tensor | None, layer: _SparseConvNd) -> Tensor:
        ctx.save_for_backward(x, theta)
        ctx.shapes = x.shape, theta.shape
        ctx.layer = layer
        ctx.index = index = layer.fast_wiring.layer_index(layer.part)
        return ops.conv2d_forward(x, theta, index, layer.window, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        dy = settle_gradient(grads[0])
        layer: _SparseConvNd = ctx.layer
        if torch.is_grad_enabled():  # create_graph=True: our gradients would be constants in that graph
            raise RuntimeError(f"{type(layer).__name__} has no second derivative: use create_graph=False")
        x, theta = kept = ctx.saved_tensors
        require_kept(kept, ctx.shapes, dy)
        need_dx, need_dtheta, need_dbias = ctx.needs_input_grad[:3]
        dx, dtheta = ops.conv2d_backward(x, dy, theta, ctx.index, layer.window, need_dx, need_dtheta)
        dbias = dy.sum((0, 2, 3)) if need_dbias else None
        watch = layer.fast_wiring.watch
        if watch is not None:
            watch.setdefault(layer.part, []).append(ConvGradient(x, dy, layer.window))
        return dx, dtheta, dbias, None


class _SparseConvNd(SparseLayer):
    """What both convolutions share; inside, one dimension is two of which the first has size 1."""

    dimensions: int
    _twin: type[nn.Conv1d] | type[nn.Conv2d]

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
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode (={padding_mode!r}) must be one of {_MODES}")
        window = settle_window(
            self.dimensions, in_channels, out_channels, kernel_size, stride, padding, dilation, groups
        )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        # As torch's layers have them: one number for each dimension.
        self.kernel_size = window.kernel[2 - self.dimensions :]
        self.stride = window.stride[2 - self.dimensions :]
        self.dilation = window.dilation[2 - self.dimensions :]
        self.padding = padding if isinstance(padding, str) else window.before[2 - self.dimensions :]
        self.padding_mode: PaddingMode = padding_mode
        # Other modes than zeros pad the input first; the convolution itself then adds nothing.
        self._margins: tuple[int, ...] | None = None
        if padding_mode != "zeros":
            ends = list(zip(window.before, window.after, strict=True))[2 - self.dimensions :]
            self._margins = tuple(size for pair in reversed(ends) for size in pair)
            window = window._replace(before=(0, 0), after=(0, 0))
        self.window = window
        shape = LayerShape(
            f"conv{self.dimensions}d", out_channels, window.group_channels * math.prod(window.kernel)
        )
        if wiring is None:
            count = settle_budget(connectivity, budget, shape.possible)
            wiring = Wiring([shape], [count], seed=seed, init=init, device=device, dtype=dtype)
        found = wiring.layers[part]
        if (found.n_out, found.n_in) != (shape.n_out, shape.n_in):
            raise ValueError(
                f"part {part} of the wiring (={found.n_out} × {found.n_in}) must be the matrix of the layer "
                f"(={shape.n_out} × {shape.n_in})"
            )
        theta = wiring.theta
        self.bias = nn.Parameter(torch.zeros(out_channels, device=theta.device, dtype=theta.dtype)) if bias else None
        self.attach(wiring, part, owner=owner)

    def forward(self, x: Tensor) -> Tensor:
        if recorded(x):
            return cast(Tensor, conv_by_operators(self, x))
        theta = self.fast_wiring.layer_theta(self.part)
        x = settle_input(x, theta, self)
        bias = None if self.bias is None else settle_bias(self.bias, theta, self.out_channels, self)
        unbatched = x.dim() == self.dimensions + 1
        if not unbatched and x.dim() != self.dimensions + 2:
            raise ValueError(
                f"the input (of shape {tuple(x.shape)}) must have {self.dimensions + 2} dimensions, "
                f"or {self.dimensions + 1} without a batch"
            )
        channels = x.shape[-1 - self.dimensions]
        if channels != self.in_channels:
            raise ValueError(f"the channels of the input (={channels}) must be in_channels (={self.in_channels})")
        if unbatched:
            x = x.unsqueeze(0)
        if self._margins is not None:
            x = F.pad(x, self._margins, mode=self.padding_mode)
        if self.dimensions == 1:
            x = x.unsqueeze(2)
        self._require_room(x)
        try:
            y = cast(Tensor, _SparseConv.apply(x, theta, bias, self))
        except DormantThetaError:
            y = cast(Tensor, _SparseConv.apply(x, self.fast_wiring.dormant_as_zero(theta), bias, self))
        if self.dimensions == 1:
            y = y.squeeze(2)
        return y.squeeze(0) if unbatched else y

    def _require_room(self, x: Tensor) -> None:
        window = self.window
        for axis in range(2 - self.dimensions, 2):
            size = x.shape[2 + axis] + window.before[axis] + window.after[axis]
            if size < window.reach(axis):
                raise ValueError(
                    f"the padded input (={size} along axis {axis - 2}) must be at least as large as the kernel "
                    f"(={window.reach(axis)} with its dilation)"
                )

    def arranged(self, matrix: Tensor) -> Tensor:
        return matrix.view(self.out_channels, self.window.group_channels, *self.kernel_size)

    def dense_twin(self) -> nn.Conv1d | nn.Conv2d:
        theta = self.wiring.theta
        twin = self._twin(
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
            if self.bias is not None:
                assert twin.bias is not None
                twin.bias.copy_(self.bias)
        return twin

    def extra_repr(self) -> str:
        possible = self.out_channels * self.window.group_channels * math.prod(self.kernel_size)
        share = 100 * self.active / possible if possible else math.nan
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        if isinstance(self.padding, str) or any(self.padding):
            parts.append(f"padding={self.padding!r}")
        if any(size != 1 for size in self.dilation):
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join([*parts, f"bias={self.bias is not None}", f"active={self.active} ({share:.3g} %)"])


class SparseConv2d(_SparseConvNd):
    """``nn.Conv2d`` with exactly K connections, stored and computed as such.

    A connection is one weight of the kernel: output channel, input channel and place.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode: as in
            ``nn.Conv2d``.
        connectivity: share of the possible connections that exist, in (0, 1]; or
        budget: their number.
        seed: decides positions, signs and first weights.
        init: ``"dense-fan-in"`` (the paper: N(0,1)/√(inputs of an output)) or ``"sparse-fan-in"``.
        wiring, part: take this part of an existing wiring instead of an own one.
    """

    dimensions = 2
    _twin = nn.Conv2d


class SparseConv1d(_SparseConvNd):
    """``nn.Conv1d`` with exactly K connections, stored and computed as such; see ``SparseConv2d``."""

    dimensions = 1
    _twin = nn.Conv1d
