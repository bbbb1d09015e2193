"""All ops by the C++ kernels, for float32 and float64 on the CPU. ``csrc/wirebound.h`` says what each does."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from wirebound.ops import philox
from wirebound.ops.backend import Backend
from wirebound.ops.faults import raise_fault
from wirebound.ops.layer_shapes import ConvWindow, Stack, StackLayer, StackWiring
from wirebound.ops.layout import Geometry
from wirebound.ops.native.calls import KERNELS, PRECISIONS, c_shapes, functions
from wirebound.ops.native.choice import conv_by_winograd
from wirebound.ops.native.csr_input import NativeCsr
from wirebound.ops.native.images import NativeImages
from wirebound.ops.native.layers import NativeLayers
from wirebound.ops.native.stack import NativeStack
from wirebound.ops.native.steps import NativeSteps
from wirebound.ops.philox import Stream, require_sample, stream_of
from wirebound.ops.rule import WiringArrays

_ALL_FINITE = functions("wb_all_finite")


class NativeBackend(NativeLayers, NativeCsr, NativeImages, NativeSteps, Backend):
    name = "native"
    has_stack = has_fused_steps = True

    def accepts(self, tensor: Tensor) -> bool:
        return tensor.is_cpu and tensor.dtype in PRECISIONS and not isinstance(tensor, FakeTensor)

    def draws_on(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def convolves_all(self, window: ConvWindow, height: int, width: int, connections: int) -> bool:
        return conv_by_winograd(window, height, width, connections)

    def stack(self, wirings: Sequence[StackWiring], layers: Sequence[StackLayer]) -> Stack:
        return NativeStack(wirings, layers)

    @staticmethod
    def normals(seed: int, stream: int, step: int, count: int, device: torch.device, first: int = 0) -> Tensor:
        out = torch.empty(count, dtype=torch.float32, device="cpu")
        KERNELS.wb_normals(seed, stream, step, first, count, out.data_ptr())
        return out

    @staticmethod
    def words(seed: int, stream: int, step: int | Tensor, count: int, device: torch.device, first: int = 0) -> Tensor:
        if first or isinstance(step, Tensor):
            return philox.words(seed, stream, step, count, device, first)
        out = torch.empty(count, dtype=torch.uint32, device="cpu")
        KERNELS.wb_words(seed, stream, step, count, out.data_ptr())
        return out.to(torch.int64)

    @staticmethod
    def negative_signs(positions: Tensor, seed: int, wiring_index: int) -> Tensor:
        signs = torch.empty(positions.numel(), dtype=torch.int8, device="cpu")
        positions, stream = positions.contiguous(), stream_of(Stream.SIGN, wiring_index)
        KERNELS.wb_signs(seed, stream, positions.data_ptr(), positions.numel(), signs.data_ptr())
        return signs < 0

    @staticmethod
    def sample_sorted(n: int, k: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
        require_sample(n, k)
        out = torch.empty(k, dtype=torch.int64, device="cpu")
        if status := KERNELS.wb_sample_sorted(n, k, seed, stream, step, out.data_ptr()):
            raise_fault(status)
        return out

    def all_finite(self, values: Tensor) -> bool:
        values = values.contiguous()
        return bool(_ALL_FINITE[values.dtype](values.data_ptr(), values.numel()))

    def index_is_good(self, geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> bool | None:
        packed_rows, colptr = packed_rows.contiguous(), colptr.contiguous()
        arrays = (*c_shapes(geometry)[1:], colptr.data_ptr(), packed_rows.data_ptr())
        return bool(KERNELS.wb_wiring_is_good(budget, geometry.layers, *arrays))

    def find(self, wiring: WiringArrays, positions: Tensor) -> Tensor:
        return _for_each(KERNELS.wb_find, wiring, positions)

    def positions_at(self, wiring: WiringArrays, places: Tensor) -> Tensor:
        return _for_each(KERNELS.wb_positions_at, wiring, places)


def _for_each(kernel: Any, wiring: WiringArrays, numbers: Tensor) -> Tensor:
    """What a kernel says of each of these numbers and a wiring."""
    numbers, out = numbers.contiguous(), torch.empty(numbers.shape, dtype=torch.int64, device="cpu")
    geometry, index = wiring.geometry, (wiring.colptr.data_ptr(), wiring.packed_rows.data_ptr())
    kernel(geometry.layers, *c_shapes(geometry)[1:], *index, numbers.data_ptr(), numbers.numel(), out.data_ptr())
    return out
