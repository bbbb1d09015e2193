"""What every call of a kernel needs: the functions of both precisions, addresses, and what must be true of arrays."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from wirebound.ops import library
from wirebound.ops.faults import WiringError
from wirebound.ops.layout import Geometry

PRECISIONS = {torch.float32: "f32", torch.float64: "f64"}
KERNELS: Any = library.load()


def functions(name: str) -> dict[torch.dtype, Any]:
    """A kernel by precision; looked up once, because a small step is mostly the overhead of its calls."""
    return {dtype: getattr(KERNELS, f"{name}_{suffix}", None) for dtype, suffix in PRECISIONS.items()}


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def require_length(theta: Tensor, connections: int) -> None:
    if theta.numel() != connections:
        raise WiringError(f"θ of a layer has {theta.numel()} elements, its wiring {connections} connections")


@functools.lru_cache(maxsize=256)
def c_shapes(geometry: Geometry) -> tuple[Any, Any, Any]:
    """An array type with one integer for each layer, and the shapes in it."""
    longs = ctypes.c_int64 * geometry.layers
    return longs, longs(*geometry.n_in), longs(*geometry.n_out)
