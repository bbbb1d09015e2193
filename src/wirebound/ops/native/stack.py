"""Sparse layers that follow each other, forward and backward in one native call each; float32 on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wirebound.ops import structs
from wirebound.ops.faults import raise_fault
from wirebound.ops.layer_shapes import StackLayer, StackWiring
from wirebound.ops.native.calls import KERNELS, address

_FORWARD: Any = getattr(KERNELS, "wb_stack_forward_f32", None)
_BACKWARD: Any = getattr(KERNELS, "wb_stack_backward_f32", None)
_MOST_SAMPLES = 32  # of a panel, csrc/fused_layer.inc.cpp


class NativeStack:
    """The layers as the kernels read them. It holds the tensors, so the addresses stay good as long as it lives."""

    def __init__(self, wirings: Sequence[StackWiring], layers: Sequence[StackLayer]) -> None:
        self.wirings = [w._replace(theta=w.theta.detach()) for w in wirings]
        self.layers = [s._replace(bias=None if s.bias is None else s.bias.detach()) for s in layers]
        self.n_wirings, self.n_layers, self.n_out = len(wirings), len(layers), layers[-1].n_out
        self.outputs = sum(layer.n_out for layer in layers)
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
        none = len(wirings) + len(self.biases)
        self._gradients = [layer.wiring for layer in layers]
        self._gradients += [none if layer.bias is None else next(numbers) for layer in layers]
        self._pointers = ctypes.c_void_p * (2 * len(layers))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not x.is_contiguous():
            x = x.contiguous()
        batch, n_in = x.shape
        n_out = self.n_out
        panels = (batch + _MOST_SAMPLES - 1) // _MOST_SAMPLES or 1
        lanes = (batch + 8 * panels - 1) // (8 * panels) * 8 * panels  # every panel has a multiple of 8 samples
        y = x.new_empty(batch, n_out)
        kept = x.new_empty(self.outputs * lanes + 2)
        status = _FORWARD(self._at, self.n_layers, x.data_ptr(), n_in, batch, kept.data_ptr(), y.data_ptr(), n_out)
        if status:
            raise_fault(status)
        return y, kept

    def backward(self, x: Tensor, kept: Tensor, dy: Tensor, need_dx: bool) -> tuple[Tensor | None, list[Tensor]]:
        if not x.is_contiguous():
            x = x.contiguous()
        if not dy.is_contiguous():
            dy = dy.contiguous()
        batch, n_in = x.shape
        dx = x.new_empty(batch, n_in) if need_dx else None
        gradients = [torch.empty_like(w.theta) if w.covered else torch.zeros_like(w.theta) for w in self.wirings]
        gradients += [torch.empty_like(bias) for bias in self.biases]
        at = [gradient.data_ptr() for gradient in gradients]
        at.append(0)
        status = _BACKWARD(
            self._at, self.n_layers, x.data_ptr(), n_in, batch, kept.data_ptr(), dy.data_ptr(), self.n_out,
            None if dx is None else dx.data_ptr(), n_in, self._pointers(*[at[i] for i in self._gradients]),
        )  # fmt: skip
        if status:
            raise_fault(status)
        return dx, gradients
