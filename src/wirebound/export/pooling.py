"""Pooling layers of torch, as far as every format can say them."""

from __future__ import annotations

from typing import Any

from torch import nn

from wirebound.export.errors import NotAChain
from wirebound.export.layers import ANY, Pool
from wirebound.nn.window import settle_window

POOLS: dict[type[nn.Module], int] = {
    nn.MaxPool1d: 1,
    nn.MaxPool2d: 2,
    nn.AvgPool1d: 1,
    nn.AvgPool2d: 2,
    nn.AdaptiveAvgPool1d: 1,
    nn.AdaptiveAvgPool2d: 2,
}


def pool_layer(label: str, name: str, pool: Any) -> Pool:
    """One of these modules as a layer."""
    own = POOLS[type(pool)]
    if isinstance(pool, nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d):
        if pool.output_size not in (1, (1,), (1, 1)):
            raise NotAChain(f"{label} must have output_size 1, the mean of each channel; or use nn.AvgPool{own}d")
        return Pool(name, "mean", None, own)
    if pool.ceil_mode:
        raise NotAChain(f"{label} has ceil_mode=True: only ceil_mode=False can be written, with padding where needed")
    largest = isinstance(pool, nn.MaxPool1d | nn.MaxPool2d)
    if largest and pool.return_indices:
        raise NotAChain(f"{label} has return_indices=True: it must return one tensor")
    if getattr(pool, "divisor_override", None) is not None:
        raise NotAChain(f"{label} has divisor_override: only means of the window can be written")
    stride = pool.kernel_size if pool.stride is None else pool.stride
    dilation = pool.dilation if largest else 1
    window = settle_window(own, 1, 1, pool.kernel_size, stride, pool.padding, dilation, 1)
    window = window._replace(in_channels=ANY, out_channels=ANY)
    return Pool(name, "max" if largest else "mean", window, own, largest or pool.count_include_pad)
