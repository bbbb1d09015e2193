"""Layers that follow each other in one native call, float32 on the CPU: forward, backward, or many steps of training."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wirebound.ops import structs
from wirebound.ops.faults import raise_fault
from wirebound.ops.layer_shapes import StackLayer, StackWiring
from wirebound.ops.native.calls import KERNELS, address
from wirebound.ops.rule import WiringArrays

_FORWARD: Any = getattr(KERNELS, "wb_stack_forward_packed_f32", None)
_BACKWARD: Any = getattr(KERNELS, "wb_stack_backward_packed_f32", None)
_FORWARD_CALL = structs.packer(structs.StackCall)
CROSS_ENTROPY, MEAN_SQUARE, SOFT_CROSS_ENTROPY = 0, 1, 2
_MOST_SAMPLES = 32  # of a panel, csrc/fused_layer.inc.cpp
_MOST_SHAPES = 16  # that a stack remembers


class NativeStack:
    """The layers as the kernels read them. It holds the tensors, so the addresses stay good as long as it lives."""

    def __init__(self, wirings: Sequence[StackWiring], layers: Sequence[StackLayer]) -> None:
        self.wirings = [w._replace(theta=w.theta.detach()) for w in wirings]
        self.layers = [s._replace(bias=None if s.bias is None else s.bias.detach()) for s in layers]
        self.n_wirings, self.n_layers = len(wirings), len(layers)
        self.n_in, self.n_out = layers[0].n_in, layers[-1].n_out
        self.outputs = sum(layer.n_out for layer in layers)
        self._shapes: dict[int, tuple[tuple[int, ...], ...]] = {}  # by samples
        self.biases = [layer.bias for layer in self.layers if layer.bias is not None]
        self._array = (structs.StackLayer * len(layers))()
        for entry, layer in zip(self._array, layers, strict=True):
            wiring = wirings[layer.wiring]
            entry.n_in, entry.n_out, entry.budget = layer.n_in, layer.n_out, wiring.theta.numel()
            entry.colptr, entry.packed_rows = wiring.colptr.data_ptr() + 8 * layer.first, wiring.packed_rows.data_ptr()
            entry.theta, entry.bias = wiring.theta.data_ptr(), address(layer.bias)
            entry.activation, entry.bound = layer.activation, wiring.bound
        self._at = ctypes.addressof(self._array)
        # Which of the gradients belongs to each layer's θ, then to each layer's bias; the last stands for none.
        numbers = iter(range(len(wirings), len(wirings) + len(self.biases)))
        biases = [-1 if layer.bias is None else next(numbers) for layer in layers]
        self._gradients = [*(layer.wiring for layer in layers), *biases]
        self._backward_call = structs.packer(structs.StackCall, pointers=len(self._gradients))

    def shapes(self, batch: int) -> tuple[tuple[int, ...], ...]:
        if (found := self._shapes.get(batch)) is None:
            panels = (batch + _MOST_SAMPLES - 1) // _MOST_SAMPLES or 1
            lanes = (batch + 8 * panels - 1) // (8 * panels) * 8 * panels  # every panel has a multiple of 8 samples
            found = ((batch, self.n_in), (self.outputs * lanes + 2,), *(w.theta.shape for w in self.wirings))
            self._shapes = {batch: found} if len(self._shapes) >= _MOST_SHAPES else {**self._shapes, batch: found}
        return found

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.contiguous()
        (batch, n_in), n_out = x.shape, self.n_out
        y, kept = x.new_empty(batch, n_out), x.new_empty(self.shapes(batch)[1][0])
        addresses = (x.data_ptr(), n_in, batch, kept.data_ptr(), y.data_ptr(), n_out, 0, 0)
        if status := _FORWARD(_FORWARD_CALL(self._at, self.n_layers, *addresses)):
            raise_fault(status)
        return y, kept

    def backward(self, x: Tensor, kept: Tensor, dy: Tensor, need_dx: bool) -> tuple[Tensor | None, list[Tensor]]:
        x, dy = x.contiguous(), dy.contiguous()
        batch, n_in = x.shape
        dx = x.new_empty(batch, n_in) if need_dx else None
        gradients = [torch.empty_like(w.theta) if w.covered else torch.zeros_like(w.theta) for w in self.wirings]
        gradients += [torch.empty_like(bias) for bias in self.biases]
        at = [*[gradient.data_ptr() for gradient in gradients], 0]
        call = self._backward_call(
            self._at, self.n_layers, x.data_ptr(), n_in, batch, kept.data_ptr(), dy.data_ptr(), self.n_out,
            0 if dx is None else dx.data_ptr(), n_in, *[at[i] for i in self._gradients],
        )  # fmt: skip
        if status := _BACKWARD(call):
            raise_fault(status)
        return dx, gradients


def _c_struct(struct: Any, values: dict[str, Any]) -> Any:
    kinds, fields = structs.KINDS[struct], values.copy()
    for name, value in values.items():
        if isinstance(value, dict):
            fields[name] = _c_struct(kinds[name], value)
        elif kinds[name] is ctypes.c_void_p and value is not None:
            fields[name] = value.data_ptr() if isinstance(value, Tensor) else ctypes.addressof(value)
    return struct(**fields)


def fused_steps(layers: list[dict[str, Any]], wirings: list[dict[str, Any]], run: dict[str, Any]) -> tuple[int, int]:
    """Steps of training of a stack: how many were taken, and the status of the last.

    Values have the names of ``csrc/wirebound.h`` (wb_fused_layer, wb_fused_wiring, wb_fused_run); arrays are tensors, or
    of ctypes.
    """
    kinds = structs.array_of(structs.FusedLayer, len(layers)), structs.array_of(structs.FusedWiring, len(wirings))
    c_layers = kinds[0](*(_c_struct(structs.FusedLayer, layer) for layer in layers))
    c_wirings = kinds[1](*(_c_struct(structs.FusedWiring, wiring) for wiring in wirings))
    c_run = _c_struct(structs.FusedRun, run)
    c_run.n_layers, c_run.layers = len(layers), ctypes.addressof(c_layers)
    c_run.n_wirings, c_run.wirings = len(wirings), ctypes.addressof(c_wirings)
    status = ctypes.c_int32()
    taken = KERNELS.wb_fused_steps_f32(ctypes.byref(c_run), ctypes.byref(status))
    if taken < 0:
        raise_fault(taken)
    return taken, status.value


# After a stretch of steps the caches hold nothing of torch: its first few operations would take as long as ten steps.


def count_active(theta: Tensor) -> int:
    """How many θ of a wiring whose signs are bound are not below 0, counted."""
    return theta.numel() - int(KERNELS.wb_dead_f32(theta.data_ptr(), theta.numel(), None, 0))


def layer_bounds(wiring: WiringArrays) -> list[int]:
    """Where each layer's connections start, and K at the end."""
    at = wiring.colptr.data_ptr()
    return [ctypes.c_int64.from_address(at + 8 * column).value for column in wiring.geometry.column_start]
