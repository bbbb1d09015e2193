"""The arguments of torch's convolutions, checked and brought into the form that the ops take."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from wirebound.ops import ConvWindow

Sizes = int | Sequence[int]


def sizes(name: str, value: Sizes, dimensions: int, least: int) -> tuple[int, ...]:
    """One number for each dimension, of an argument that may be one for all."""
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    if len(given) == 1:
        given *= dimensions
    try:
        settled = tuple(operator.index(size) for size in given)
    except TypeError:
        settled = ()
    if len(settled) != dimensions or any(size < least for size in settled):
        raise ValueError(f"{name} (={value!r}) must be {dimensions} whole numbers >= {least}, or one for all")
    return settled


def _height_and_width(name: str, value: Sizes, dimensions: int, least: int) -> tuple[int, int]:
    given = sizes(name, value, dimensions, least)
    return (given[0], given[1]) if dimensions == 2 else (0 if least == 0 else 1, given[0])


def require_channels(in_channels: int, out_channels: int, groups: int) -> None:
    """Raise unless all groups have as many channels, and at least one."""
    if groups < 1:
        raise ValueError(f"groups (={groups}) must be >= 1")
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if channels < 1 or channels % groups:
            raise ValueError(f"{name} (={channels}) must be a multiple of groups (={groups}), and >= 1")


def same_margins(kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """What padding="same" adds before and after each dimension: an even reach leaves one more, which torch puts after."""
    total = [(size - 1) * gap for size, gap in zip(kernel, dilation, strict=True)]
    return [(size // 2, size - size // 2) for size in total]


def settle_window(
    dimensions: int,
    in_channels: int,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> ConvWindow:
    """The window of a convolution in one or two dimensions; one is two of which the first has size 1."""
    require_channels(in_channels, out_channels, groups)
    kernel = _height_and_width("kernel_size", kernel_size, dimensions, 1)
    steps = _height_and_width("stride", stride, dimensions, 1)
    spread = _height_and_width("dilation", dilation, dimensions, 1)
    if not isinstance(padding, str):
        before = after = _height_and_width("padding", padding, dimensions, 0)
    elif padding == "valid":
        before = after = (0, 0)
    elif padding == "same":
        if steps != (1, 1):
            raise ValueError(f"stride (={stride!r}) must be 1 with padding='same'")
        (top, bottom), (left, right) = same_margins(kernel, spread)
        before, after = (top, left), (bottom, right)
    else:
        raise ValueError(f"padding (={padding!r}) must be numbers, 'same' or 'valid'")
    return ConvWindow(in_channels, out_channels, kernel, steps, before, after, spread, groups)
