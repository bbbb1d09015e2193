"""Blocks of networks for images: what stands between their convolutions, each in one pass of a kernel.

Where there are no kernels (other devices, tracing), the same in plain torch.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from wirebound import ops
from wirebound.nn.inputs import in_memory
from wirebound.nn.trace import recorded
from wirebound.ops.image_shapes import PoolNorm, StemShape
from wirebound.wiring.trust import is_plain


class Stem(nn.Linear):
    """The first block: a dense convolution with stride 1, ReLU, pooling, local response normalisation.

    Its weight is the matrix [out_channels, in_channels · kernel²] over what one output sees.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, padding: int, after: PoolNorm) -> None:
        super().__init__(in_channels * kernel**2, out_channels)
        self.shape = StemShape(in_channels, out_channels, kernel, padding, after)

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad or not _has_kernel(x, self.weight, self.bias):  # the kernel has no gradient to the images
            return stem_in_torch(x, self.weight, self.bias, self.shape)
        y: Tensor = _Stem.apply(x, self.weight, self.bias, self.shape)
        return y

    def extra_repr(self) -> str:
        return repr(self.shape)


class NormPool(nn.Module):
    """ReLU, local response normalisation, pooling."""

    def __init__(self, shape: PoolNorm) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        if not _has_kernel(x):
            return norm_pool_in_torch(x, self.shape)
        y: Tensor = _NormPool.apply(x, self.shape)
        return y

    def extra_repr(self) -> str:
        return repr(self.shape)


def _has_kernel(x: Tensor, *parameters: Tensor) -> bool:
    if x.dim() != 4 or x.numel() == 0 or recorded(x):
        return False
    alike = all(p.dtype is x.dtype and p.device == x.device and is_plain(p) for p in parameters)
    return alike and is_plain(x) and ops.backend_of(x).has_image_blocks


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, shape: StemShape) -> Tensor:
        x = in_memory(x)
        y, kept = ops.backend_of(x).stem_forward(x, in_memory(weight), in_memory(bias), shape)
        ctx.save_for_backward(x, *kept)
        ctx.shape = shape
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[None, Tensor, Tensor, None]:
        x, *kept = ctx.saved_tensors
        dweight, dbias = ops.backend_of(x).stem_backward(x, tuple(kept), in_memory(dy), ctx.shape)
        return None, dweight, dbias, None


class _NormPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: PoolNorm) -> Tensor:
        x = in_memory(x)
        y, places = ops.backend_of(x).norm_pool_forward(x, shape)
        ctx.save_for_backward(x, places)
        ctx.shape = shape
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        x, places = ctx.saved_tensors
        return ops.backend_of(x).norm_pool_backward(x, places, in_memory(dy), ctx.shape), None


# The same in plain torch: a matrix over patches, because three channels are too few for torch's convolution to be quick,
# and the sum over neighbouring channels as a product with a band.


def stem_in_torch(x: Tensor, weight: Tensor, bias: Tensor, shape: StemShape) -> Tensor:
    kernel, padding = shape.kernel, shape.padding
    patches = F.pad(x, (padding,) * 4).unfold(2, kernel, 1).unfold(3, kernel, 1).permute(0, 2, 3, 1, 4, 5)
    y = F.linear(patches.flatten(3), weight, bias).permute(0, 3, 1, 2)
    # The largest of the positive parts is the positive part of the largest, on a quarter of the numbers.
    return local_response(F.relu(_pool(y, shape.after)), shape.after)


def norm_pool_in_torch(x: Tensor, shape: PoolNorm) -> Tensor:
    return _pool(local_response(F.relu(x), shape), shape)


def local_response(x: Tensor, shape: PoolNorm) -> Tensor:
    """Local response normalisation of x [B, channels, H, W]."""
    last = x.permute(0, 2, 3, 1)
    places = torch.arange(x.shape[1], device=x.device)
    band = ((places[:, None] - places).abs() <= shape.radius).to(x.dtype)
    result: Tensor = _LocalResponse.apply(last.reshape(-1, x.shape[1]), band, shape)
    return result.view(last.shape).permute(0, 3, 1, 2)


def _pool(x: Tensor, shape: PoolNorm) -> Tensor:
    return F.max_pool2d(x, shape.window, shape.step, ceil_mode=True)


class _LocalResponse(torch.autograd.Function):
    """x · d^−β of x [N, channels], faster than torch's on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, band: Tensor, shape: PoolNorm) -> Tensor:
        d = (x * x).mm(band).mul_(shape.alpha).add_(shape.bias)
        if shape.beta == 0.75:
            root = d.rsqrt()
            scale = root * root.sqrt()
        else:
            scale = d.pow(-shape.beta)
        ctx.save_for_backward(x, band, d, scale)
        ctx.shape = shape
        return x * scale

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        x, band, d, scale = ctx.saved_tensors
        own = dy * scale
        shared = (own * x).div_(d).mm(band)
        return own.addcmul_(x, shared, value=-2 * ctx.shape.beta * ctx.shape.alpha), None, None
