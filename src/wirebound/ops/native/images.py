"""Blocks of networks for images, and what they are fed with, by the C++ kernels."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from wirebound.ops import structs
from wirebound.ops.faults import raise_fault
from wirebound.ops.image_shapes import PoolNorm, StemShape
from wirebound.ops.native.calls import KERNELS, address, functions
from wirebound.ops.reference.images import ReferenceImages

_STEM_FORWARD, _STEM_BACKWARD = functions("wb_stem_forward"), functions("wb_stem_backward")
_NORM_POOL_FORWARD, _NORM_POOL_BACKWARD = functions("wb_norm_pool_forward"), functions("wb_norm_pool_backward")
_threads = torch.get_num_threads
_LARGEST_WINDOW = 15  # a place in it is a byte


def _c_pool_norm(shape: PoolNorm, batch: int, channels: int, height: int, width: int) -> Any:
    if not 1 <= shape.window <= _LARGEST_WINDOW or shape.step < 1 or shape.radius < 0:
        raise ValueError(f"window (={shape.window}) must be in [1, {_LARGEST_WINDOW}], step >= 1, radius >= 0: {shape}")
    pooled = (shape.pooled(height), shape.pooled(width))
    return structs.PoolNorm(batch, channels, (height, width), pooled, *shape)


def _c_stem(shape: StemShape, x: Tensor) -> Any:
    batch, channels, height, width = x.shape
    sizes = (shape.out_size(height), shape.out_size(width))
    if channels != shape.in_channels or min(sizes) < 1:
        raise ValueError(f"the images (of shape {tuple(x.shape)}) must have {shape.in_channels} channels and hold the kernel")
    after = _c_pool_norm(shape.after, batch, shape.out_channels, *sizes)
    return structs.Stem(after, channels, (height, width), (shape.kernel,) * 2, (shape.padding,) * 2)


class NativeImages(ReferenceImages):
    has_image_blocks = True

    def cut_pieces(
        self, images: Tensor, chosen: Tensor, top: Tensor, left: Tensor, mirrored: Tensor, contrast: Tensor | None, side: int
    ) -> Tensor:
        if images.dtype is not torch.uint8 or not images.is_cpu:
            return super().cut_pieces(images, chosen, top, left, mirrored, contrast, side)
        total, channels, height, width = images.shape
        images, count = images.contiguous(), len(chosen)
        for name, numbers, most in (("chosen", chosen, total), ("top", top, height - side + 1), ("left", left, width - side + 1)):
            if len(numbers) != count or (count and not 0 <= int(numbers.min()) <= int(numbers.max()) < most):
                raise ValueError(f"{name} must be {count} numbers in [0, {most}) for pieces of {side} of images of {height}x{width}")
        if len(mirrored) != count or (contrast is not None and len(contrast) != count):
            raise ValueError(f"mirrored and contrast must be {count} numbers, one for each piece")
        chosen, top, left = (numbers.to(torch.int64).contiguous() for numbers in (chosen, top, left))
        mirrored = mirrored.to(torch.uint8).contiguous()
        contrast = None if contrast is None else contrast.to(torch.float32).contiguous()
        out = torch.empty(count, channels, side, side)
        task = structs.Pieces(count, channels, (height, width), (side, side))
        arrays = (address(tensor) for tensor in (images, chosen, top, left, mirrored, contrast, out))
        if status := KERNELS.wb_cut_pieces(ctypes.byref(task), *arrays, _threads()):
            raise_fault(status)
        return out

    def stem_forward(
        self, x: Tensor, weight: Tensor, bias: Tensor, shape: StemShape
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        matrix = (shape.out_channels, shape.in_channels * shape.kernel**2)
        if weight.shape != matrix or bias.shape != matrix[:1]:
            raise ValueError(f"weight and bias (of shapes {tuple(weight.shape)}, {tuple(bias.shape)}) must be those of {matrix}")
        stem = _c_stem(shape, x)
        height, width = stem.after.pooled
        y = x.new_empty(len(x), shape.out_channels, height, width)
        pooled, places = torch.empty_like(y), y.new_empty(y.shape, dtype=torch.uint8)
        arrays = (tensor.data_ptr() for tensor in (x, weight, bias, pooled, places, y))
        if status := _STEM_FORWARD[x.dtype](ctypes.byref(stem), *arrays, _threads()):
            raise_fault(status)
        return y, (pooled, places)

    def stem_backward(
        self, x: Tensor, kept: tuple[Tensor, Tensor], dy: Tensor, shape: StemShape
    ) -> tuple[Tensor, Tensor]:
        x, dy = x.contiguous(), dy.contiguous()
        dweight = x.new_empty(shape.out_channels, shape.in_channels * shape.kernel**2)
        dbias = x.new_empty(shape.out_channels)
        stem = _c_stem(shape, x)
        arrays = (tensor.data_ptr() for tensor in (x, *kept, dy, dweight, dbias))
        if status := _STEM_BACKWARD[x.dtype](ctypes.byref(stem), *arrays, _threads()):
            raise_fault(status)
        return dweight, dbias

    def norm_pool_forward(self, x: Tensor, shape: PoolNorm) -> tuple[Tensor, Tensor]:
        x = x.contiguous()
        task = _c_pool_norm(shape, *x.shape)
        height, width = task.pooled
        y = x.new_empty(*x.shape[:2], height, width)
        places = y.new_empty(y.shape, dtype=torch.uint8)
        arrays = (tensor.data_ptr() for tensor in (x, places, y))
        if status := _NORM_POOL_FORWARD[x.dtype](ctypes.byref(task), *arrays, _threads()):
            raise_fault(status)
        return y, places

    def norm_pool_backward(self, x: Tensor, kept: Tensor, dy: Tensor, shape: PoolNorm) -> Tensor:
        x, dy = x.contiguous(), dy.contiguous()
        dx = torch.empty_like(x)
        arrays = (tensor.data_ptr() for tensor in (x, kept, dy, dx))
        if status := _NORM_POOL_BACKWARD[x.dtype](ctypes.byref(_c_pool_norm(shape, *x.shape)), *arrays, _threads()):
            raise_fault(status)
        return dx
