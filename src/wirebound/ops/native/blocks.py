"""Convolutions most of whose weights are active: the weights of a block of input channels are written out and convolved by torch.

A block has about a megabyte, not the whole kernel unless that is smaller. Gradients are read at the active positions."""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.ops.faults import raise_fault
from wirebound.ops.layer_shapes import ConvWindow, Gradients
from wirebound.ops.layout import LayerIndex
from wirebound.ops.native.calls import functions, layer_addresses

_EXPAND, _GATHER = functions("wb_expand_columns"), functions("wb_gather_columns")
_BLOCK_BYTES = 1 << 20
_MARGIN = 32  # numbers behind a block that its kernels may read
_PART_IMAGES, _MOST_PARTS = 16, 4  # of a batch, for the gradient of the weights
_kept = threading.local()  # one block for each thread, used again and again


def _block(like: Tensor, columns: int, n_out: int) -> Tensor:
    wanted = (columns * n_out + _MARGIN) * like.element_size()
    memory: Tensor | None = getattr(_kept, "memory", None)
    if memory is None or memory.numel() < wanted:
        with torch.inference_mode(False):
            memory = _kept.memory = torch.zeros(wanted, dtype=torch.uint8, device="cpu")
    return memory[:wanted].view(like.dtype)[: columns * n_out].view(columns, n_out)


def _channel_blocks(window: ConvWindow, size: int) -> list[tuple[int, int]]:
    """Ranges of the channels of each group whose weights are a block."""
    places, channels = window.kernel[0] * window.kernel[1], window.group_channels
    each = max(1, _BLOCK_BYTES // max(1, size * window.out_channels * places))
    count = -(-channels // each)
    return [(channels * i // count, channels * (i + 1) // count) for i in range(count)]


def _channels(x: Tensor, window: ConvWindow, low: int, high: int) -> Tensor:
    if high - low == window.group_channels:
        return x
    return x.unflatten(1, (window.groups, window.group_channels))[:, :, low:high].flatten(1, 2)


@contextmanager
def _plain(one_thread: bool = False) -> Iterator[None]:
    """torch's operators in the precision of their arguments; on one thread where their sums depend on how many there are."""
    threads = torch.get_num_threads()
    one_thread &= threads > 1
    if one_thread:
        torch.set_num_threads(1)
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            yield
    finally:
        if one_thread:
            torch.set_num_threads(threads)


def _settle(x: Tensor, window: ConvWindow) -> tuple[Tensor, tuple[int, int], bool]:
    """The input, the padding that torch adds to it, and whether it was padded here, as where the two sides differ."""
    if window.before == window.after:
        return x.contiguous(), window.before, False
    (top, left), (bottom, right) = window.before, window.after
    return F.pad(x, (left, right, top, bottom)), (0, 0), True


def _weight(theta: Tensor, index: LayerIndex, bound: bool, window: ConvWindow, low: int, high: int) -> Tensor:
    places, n_out = window.kernel[0] * window.kernel[1], window.out_channels
    columns = (high - low) * places
    block = _block(theta, columns, n_out)
    layer, n_in = layer_addresses(theta, index), window.group_channels * places
    if status := _EXPAND[theta.dtype](n_in, n_out, *layer, bound, low * places, columns, block.data_ptr()):
        raise_fault(status)
    return block.t().contiguous().view(n_out, high - low, *window.kernel)


def conv_forward(x: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, bias: Tensor | None) -> Tensor:
    y: Tensor | None = None
    with _plain():
        x, padding, _ = _settle(x, window)
        for low, high in _channel_blocks(window, x.element_size()):
            weight, own = _weight(theta, index, index.bound, window, low, high), _channels(x, window, low, high)
            part = F.conv2d(own, weight, bias if y is None else None, window.stride, padding, window.dilation, window.groups)
            y = part if y is None else y.add_(part)
    assert y is not None
    return y.contiguous()


@functools.cache
def _helpers(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads for the parts of a gradient; a forked process needs its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="wirebound")


def _sum_of_parts(batch: int, gradient_of: Callable[[slice], Tensor]) -> Tensor:
    """The gradient of the weights, which torch sums up differently on several threads. So each part of the batch is left to
    one thread; how many parts there are depends on the batch alone, and they are added up in order."""
    count = min(_MOST_PARTS, max(1, batch // _PART_IMAGES))
    parts = [slice(batch * i // count, batch * (i + 1) // count) for i in range(count)]
    threads = min(torch.get_num_threads(), count)

    def own_parts(thread: int) -> list[Tensor]:
        if threads > 1:
            torch.set_num_threads(1)  # a thread has its own number; that of the caller comes back below
        with _plain():
            return [gradient_of(part) for part in parts[thread::threads]]

    with _plain(one_thread=True):
        others = [_helpers(os.getpid(), threads - 1).submit(own_parts, thread) for thread in range(1, threads)]
        try:
            found = [own_parts(0)]
        finally:
            wait(others)
        found += [other.result() for other in others]
        return functools.reduce(Tensor.add_, (found[i % threads][i // threads] for i in range(count)))


def conv_backward(
    x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, window: ConvWindow, need_dx: bool, need_dtheta: bool
) -> Gradients:
    n_out, places = window.out_channels, window.kernel[0] * window.kernel[1]
    size, (top, left) = x.shape[2:], window.before
    dtheta = torch.empty_like(theta) if need_dtheta else None
    pieces: list[Tensor] = []
    dy = dy.contiguous()
    with _plain():
        x, padding, padded = _settle(x, window)

    def convolution(own: Tensor, dy: Tensor, weight: Tensor, *wanted: bool) -> Any:
        settings = (window.stride, padding, window.dilation, False, (0, 0), window.groups)
        return torch.ops.aten.convolution_backward(dy, own, weight, None, *settings, (*wanted, False))

    def gradient_of_part(own: Tensor, weight: Tensor, part: slice) -> Any:
        return convolution(own[part], dy[part], weight, False, True)[1]

    for low, high in _channel_blocks(window, x.element_size()):
        with _plain():
            own, weight = _channels(x, window, low, high), _weight(theta, index, False, window, low, high)
            if need_dx:
                pieces.append(convolution(own, dy, weight, True, False)[0])
        if dtheta is None:
            continue
        gradient = _sum_of_parts(len(own), functools.partial(gradient_of_part, own, weight))
        columns = (high - low) * places
        with _plain():
            block = _block(theta, columns, n_out).copy_(gradient.reshape(n_out, columns).t())
        layer = layer_addresses(theta, index)[:3]
        arguments = (low * places, columns, block.data_ptr(), dtheta.data_ptr())
        if status := _GATHER[theta.dtype](window.group_channels * places, n_out, *layer, *arguments):
            raise_fault(status)
    dx: Tensor | None = None
    if need_dx:
        parts = [piece.unflatten(1, (window.groups, -1)) for piece in pieces]
        dx = pieces[0] if len(pieces) == 1 else torch.cat(parts, 2).flatten(1, 2)
        dx = dx[:, :, top : top + size[0], left : left + size[1]] if padded else dx
        dx = dx.contiguous()
    return dx, dtheta
