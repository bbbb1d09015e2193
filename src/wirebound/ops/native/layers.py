"""Sparse linear layers, convolutions and recurrent layers with gates by the C++ kernels."""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wirebound.ops import spare_memory, structs
from wirebound.ops.faults import raise_fault
from wirebound.ops.layer_shapes import (
    GATES,
    BackwardCall,
    ConvWindow,
    ForwardCall,
    Gradients,
    Kept,
    Recurrence,
    RecurrentGradients,
    WatchedGradients,
)
from wirebound.ops.layout import LayerIndex
from wirebound.ops.native import blocks
from wirebound.ops.native.calls import address, functions, layer_addresses
from wirebound.ops.native.choice import conv_by_blocks, conv_by_winograd, linear_by_blocks
from wirebound.ops.reference.recurrent import ReferenceRecurrent

_LINEAR_FORWARD, _LINEAR_BACKWARD = functions("wb_linear_forward_packed"), functions("wb_linear_backward_packed")
_FORWARD_CALL, _BACKWARD_CALL = structs.packer(structs.LinearForward), structs.packer(structs.LinearBackward)
_CONV_FORWARD, _CONV_BACKWARD = functions("wb_conv_forward"), functions("wb_conv_backward")
_WINOGRAD_FORWARD, _WINOGRAD_BACKWARD = functions("wb_winograd_forward"), functions("wb_winograd_backward")
_RECURRENT_FORWARD, _RECURRENT_BACKWARD = functions("wb_recurrent_forward"), functions("wb_recurrent_backward")
_threads = torch.get_num_threads
_KINDS = {"lstm": 0, "gru": 1}
_PANEL_BYTES = (32, 64, 128)  # of a feature, csrc/layer.inc.cpp
_KEPT = 5  # numbers for each hidden unit, sequence and step
# Which of a unit's four sums each gate adds to, of W_ih and of W_hh (csrc/recurrent_links.inc.cpp).
_SUMS = {"lstm": ([0, 1, 2, 3], [0, 1, 2, 3]), "gru": ([0, 1, 2], [0, 1, 3])}


def _row_major(tensor: Tensor) -> Tensor:
    """The tensor itself if its rows are contiguous, as the kernels read it; else a copy."""
    if tensor.is_contiguous():
        return tensor
    across, along = tensor.stride()
    return tensor if along == 1 and across >= tensor.shape[1] else tensor.contiguous()


@functools.lru_cache(maxsize=256)
def _c_conv(window: ConvWindow, batch: int, height: int, width: int) -> Any:
    """A convolution of inputs of this size, as the kernels read it."""
    out_size = (window.out_size(height, 0), window.out_size(width, 1))
    channels = (window.in_channels, window.out_channels, window.groups)
    sizes = ((height, width), out_size, window.kernel, window.stride, window.before, window.dilation)
    return structs.Conv(batch, *channels, *sizes)


def _how_to_convolve(x: Tensor, theta: Tensor, window: ConvWindow) -> str:
    """The fastest of ``choice.py``: "sparse", "blocks" or "winograd"."""
    batch, _, height, width = x.shape
    if batch == 0 or min(window.out_size(height, 0), window.out_size(width, 1)) <= 0:
        return "sparse"
    if conv_by_winograd(window, height, width, theta.numel()):
        return "winograd"
    n_in = window.group_channels * window.kernel[0] * window.kernel[1]
    return "blocks" if conv_by_blocks(n_in, window.out_channels, theta.numel()) else "sparse"


def _dense_features(sequences: Tensor) -> Tensor:
    """The tensor itself if its features are contiguous, as the kernels read it; else a copy."""
    return sequences if sequences.stride(2) == 1 or sequences.shape[2] <= 1 else sequences.contiguous()


def _room(batch: int, size: int) -> int:
    """Sequences that what is kept has room for: whole panels, and a last one as narrow as it may be."""
    widest = _PANEL_BYTES[-1] // size
    whole, rest = divmod(batch, widest)
    return whole * widest + next((bytes_ // size for bytes_ in _PANEL_BYTES if bytes_ // size >= rest), 0) * bool(rest)


def _empty_like(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else torch.empty_like(tensor)


def _c_recurrent(cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None) -> Any:
    steps, batch, n_in = x.shape
    task = structs.Recurrent(
        kind=_KINDS[cell.kind], reverse=cell.reverse, steps=steps, batch=batch, n_in=n_in, n_hidden=cell.hidden,
        lengths=address(cell.lengths), bound=cell.index_ih.bound or cell.index_hh.bound,
        bias_ih=address(cell.bias_ih), bias_hh=address(cell.bias_hh), h_0=h_0.data_ptr(), c_0=address(c_0),
        x=x.data_ptr(), x_time=x.stride(0), x_sample=x.stride(1),
    )  # fmt: skip
    for name, theta, index in (("ih", cell.theta_ih, cell.index_ih), ("hh", cell.theta_hh, cell.index_hh)):
        for field, value in zip(("connections", "colptr", "packed_rows", "theta"), layer_addresses(theta, index), strict=True):
            setattr(task, f"{field}_{name}", value)
    return task


class NativeLayers(ReferenceRecurrent):
    """On the reference only for recurrent layers without gates, which are loops around the linear ops."""

    def linear_forward(self, x: Tensor, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None) -> Tensor:
        x = _row_major(x)
        batch, n_in = x.shape
        y = x.new_empty(batch, n_out)
        layer = layer_addresses(theta, index)
        call = _FORWARD_CALL(
            x.data_ptr(), x.stride(0), y.data_ptr(), n_out, batch, n_in, n_out, *layer, index.bound,
            0 if bias is None else bias.data_ptr(), _threads(), linear_by_blocks(n_in, n_out, layer[0]),
        )  # fmt: skip
        if status := _LINEAR_FORWARD[theta.dtype](call):
            raise_fault(status)
        return y

    def linear_backward(
        self, x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, need_dx: bool, need_dtheta: bool
    ) -> Gradients:
        x, dy = _row_major(x), _row_major(dy)
        batch, n_in = x.shape
        dx = x.new_empty(batch, n_in) if need_dx else None
        dtheta = torch.empty_like(theta) if need_dtheta else None
        layer, n_out = layer_addresses(theta, index), dy.shape[1]
        call = _BACKWARD_CALL(
            x.data_ptr(), x.stride(0), dy.data_ptr(), dy.stride(0), 0 if dx is None else dx.data_ptr(), n_in,
            0 if dtheta is None else dtheta.data_ptr(), batch, n_in, n_out, *layer, _threads(),
            linear_by_blocks(n_in, n_out, layer[0]),
        )  # fmt: skip
        if status := _LINEAR_BACKWARD[theta.dtype](call):
            raise_fault(status)
        return dx, dtheta

    def conv2d_forward(
        self, x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None
    ) -> Tensor:
        how = _how_to_convolve(x, theta, window)
        if how == "blocks":
            return blocks.conv_forward(x, theta, index, window, bias)
        x = x.contiguous()
        batch, _, height, width = x.shape
        y = x.new_empty(batch, window.out_channels, window.out_size(height, 0), window.out_size(width, 1))
        conv, layer = _c_conv(window, batch, height, width), layer_addresses(theta, index)
        arguments = (x.data_ptr(), y.data_ptr(), *layer, index.bound, address(bias), _threads())
        run = (_WINOGRAD_FORWARD if how == "winograd" else _CONV_FORWARD)[theta.dtype]
        if status := run(ctypes.byref(conv), *arguments):
            raise_fault(status)
        return y

    def conv2d_backward(
        self,
        x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, need_dx: bool, need_dtheta: bool,
    ) -> Gradients:  # fmt: skip
        how = _how_to_convolve(x, theta, window)
        if how == "blocks":
            return blocks.conv_backward(x, dy, theta, index, window, need_dx, need_dtheta)
        x, dy = x.contiguous(), dy.contiguous()
        batch, _, height, width = x.shape
        dx = torch.empty_like(x) if need_dx else None
        dtheta = torch.empty_like(theta) if need_dtheta else None
        conv, layer = _c_conv(window, batch, height, width), layer_addresses(theta, index)
        arguments = (x.data_ptr(), dy.data_ptr(), address(dx), address(dtheta), *layer, _threads())
        run = (_WINOGRAD_BACKWARD if how == "winograd" else _CONV_BACKWARD)[theta.dtype]
        if status := run(ctypes.byref(conv), *arguments):
            raise_fault(status)
        return dx, dtheta

    def recurrent_forward_each(self, calls: Sequence[ForwardCall]) -> list[Kept]:
        if calls[0][0].is_simple:
            return super().recurrent_forward_each(calls)
        tasks = [_ForwardTask(*call) for call in calls]
        together = structs.array_of(structs.Recurrent, len(tasks))(*(task.task for task in tasks))
        if status := _RECURRENT_FORWARD[calls[0][1].dtype](together, len(tasks), _threads()):
            raise_fault(status)
        return [task.outcome for task in tasks]

    def recurrent_backward_each(self, calls: Sequence[BackwardCall]) -> list[RecurrentGradients]:
        if calls[0][0].is_simple:
            return super().recurrent_backward_each(calls)
        tasks = [_BackwardTask(*call) for call in calls]
        together = structs.array_of(structs.Recurrent, len(tasks))(*(task.task for task in tasks))
        wanted = structs.array_of(structs.RecurrentGradients, len(tasks))(*(task.wanted for task in tasks))
        if status := _RECURRENT_BACKWARD[calls[0][1].dtype](together, wanted, len(tasks), _threads()):
            raise_fault(status)
        return [task.outcome() for task in tasks]

    def recurrent_kept_numbers(self, kind: str, steps: int, batch: int, hidden: int, size: int) -> int:
        if GATES[kind] == 1:
            return super().recurrent_kept_numbers(kind, steps, batch, hidden, size)
        widest = _PANEL_BYTES[-1] // size  # room for whole panels: a batch that a graph leaves open decides nothing
        return (batch + widest - 1) // widest * widest * steps * _KEPT * hidden

    def recurrent_forward_into(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, y: Tensor, kept: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if cell.is_simple:
            return super().recurrent_forward_into(cell, x, h_0, c_0, y, kept)
        task = _ForwardTask(cell, x, h_0, c_0, y, kept is not None, kept)
        if kept is not None:  # an operator's outputs are all defined
            kept[_room(x.shape[1], x.element_size()) * x.shape[0] * _KEPT * cell.hidden :].zero_()
        if status := _RECURRENT_FORWARD[x.dtype](ctypes.byref(task.task), 1, _threads()):
            raise_fault(status)
        return task.outcome.h_n, task.outcome.c_n

    def recurrent_backward_from(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, kept: Tensor,
        dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None, need_dx: bool,
    ) -> RecurrentGradients:  # fmt: skip
        if cell.is_simple:
            return super().recurrent_backward_from(cell, x, h_0, c_0, kept, dy, dh_n, dc_n, need_dx)
        return self.recurrent_backward(cell, x, h_0, c_0, (kept,), dy, dh_n, dc_n, need_dx, False)

    def recurrent_forward(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, y: Tensor, keep: bool
    ) -> Kept:
        if cell.is_simple:
            return super().recurrent_forward(cell, x, h_0, c_0, y, keep)
        return self.recurrent_forward_each([(cell, x, h_0, c_0, y, keep)])[0]

    def recurrent_backward(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, kept: tuple[Tensor, ...],
        dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None, need_dx: bool, watched: bool,
    ) -> RecurrentGradients:  # fmt: skip
        if cell.is_simple:
            return super().recurrent_backward(cell, x, h_0, c_0, kept, dy, dh_n, dc_n, need_dx, watched)
        return self.recurrent_backward_each([(cell, x, h_0, c_0, kept, dy, dh_n, dc_n, need_dx, watched)])[0]


class _ForwardTask:
    """One direction forward, as the kernels read it; it holds the tensors whose addresses it has."""

    def __init__(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, y: Tensor, keep: bool, kept: Tensor | None = None
    ) -> None:
        x, h_0 = _dense_features(x), h_0.contiguous()
        c_0 = None if c_0 is None else c_0.contiguous()
        steps, batch, _ = x.shape
        h_n, c_n = torch.empty_like(h_0), _empty_like(c_0)
        if keep and kept is None:
            kept = spare_memory.take(x, _room(batch, x.element_size()) * steps * _KEPT * cell.hidden)
        task = self.task = _c_recurrent(cell, x, h_0, c_0)
        task.y, task.y_time, task.y_sample = y.data_ptr(), y.stride(0), y.stride(1)
        task.h_n, task.c_n, task.kept = h_n.data_ptr(), address(c_n), address(kept)
        self._alive = (cell, x, h_0, c_0, y)
        self.outcome = Kept(h_n, c_n, () if kept is None else (kept,))


class _BackwardTask:
    """One direction backward, as the kernels read it; it holds the tensors whose addresses it has."""

    def __init__(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, kept: tuple[Tensor, ...],
        dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None, need_dx: bool, watched: bool,
    ) -> None:  # fmt: skip
        x, h_0 = _dense_features(x), h_0.contiguous()
        c_0, dh_n, dc_n = (None if t is None else t.contiguous() for t in (c_0, dh_n, dc_n))
        task = self.task = _c_recurrent(cell, x, h_0, c_0)
        task.kept = kept[0].data_ptr()
        dh_0, dc_0, dbias_ih, dbias_hh = torch.empty_like(h_0), *map(_empty_like, (c_0, cell.bias_ih, cell.bias_hh))
        dtheta_ih, dtheta_hh = torch.empty_like(cell.theta_ih), torch.empty_like(cell.theta_hh)
        rows = x.shape[0] * x.shape[1]
        self._sums = sums = x.new_zeros(rows, cell.hidden, 4) if watched else None
        self._h_before = h_before = x.new_zeros(rows, cell.hidden) if watched else None
        wanted = self.wanted = structs.RecurrentGradients(
            dh_n=address(dh_n), dc_n=address(dc_n), dh_0=dh_0.data_ptr(), dc_0=address(dc_0),
            dtheta_ih=dtheta_ih.data_ptr(), dtheta_hh=dtheta_hh.data_ptr(),
            dbias_ih=address(dbias_ih), dbias_hh=address(dbias_hh), sums=address(sums), h_before=address(h_before),
        )  # fmt: skip
        if dy is not None:
            dy = _dense_features(dy)
            wanted.dy, wanted.dy_time, wanted.dy_sample = dy.data_ptr(), dy.stride(0), dy.stride(1)
        dx = _dense_features(torch.empty_like(x)) if need_dx else None
        if dx is not None:
            wanted.dx, wanted.dx_time, wanted.dx_sample = dx.data_ptr(), dx.stride(0), dx.stride(1)
        self._cell, self._alive = cell, (x, h_0, c_0, kept, dy, dh_n, dc_n)
        self._found = RecurrentGradients(dx, dh_0, dc_0, dtheta_ih, dtheta_hh, dbias_ih, dbias_hh, None)

    def outcome(self) -> RecurrentGradients:
        """After the call."""
        sums, h_before, gates_of = self._sums, self._h_before, _SUMS[self._cell.kind]
        if sums is None or h_before is None:
            return self._found
        of_ih, of_hh = (sums if len(gates) == sums.shape[2] else sums[:, :, gates] for gates in gates_of)
        return self._found._replace(watched=WatchedGradients(of_ih, of_hh, h_before))
