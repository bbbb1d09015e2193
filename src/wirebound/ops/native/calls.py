"""What every call of a kernel needs: the functions of both precisions, addresses, and what must be true of arrays."""

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from wirebound.ops import library
from wirebound.ops.faults import WiringError
from wirebound.ops.layout import Geometry, LayerIndex

PRECISIONS = {torch.float32: "f32", torch.float64: "f64"}
KERNELS: Any = library.load()


def functions(name: str) -> dict[torch.dtype, Any]:
    """A kernel by precision; looked up once, because a small step is mostly the overhead of its calls."""
    return {dtype: getattr(KERNELS, f"{name}_{suffix}", None) for dtype, suffix in PRECISIONS.items()}


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def layer_addresses(theta: Tensor, index: LayerIndex) -> tuple[int, int, int, int]:
    """Connections of a layer, and where its column pointers, rows and θ are."""
    packed_rows, colptr, start, end, first, _, _ = index
    if theta.numel() != end - start:
        raise WiringError(f"θ of a layer has {theta.numel()} elements, its wiring {end - start} connections")
    return end - start, colptr.data_ptr() + 8 * first, packed_rows.data_ptr() + 4 * start, theta.data_ptr()


@functools.lru_cache(maxsize=256)
def c_shapes(geometry: Geometry) -> tuple[Any, Any, Any]:
    """An array type with one integer for each layer, and the shapes in it."""
    longs = ctypes.c_int64 * geometry.layers
    return longs, longs(*geometry.n_in), longs(*geometry.n_out)
