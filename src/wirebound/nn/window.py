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


def require_channels(in_channels: int, out_channels: int, groups: int) -> None:
    """Raise unless all groups have as many channels, and at least one."""
    if groups < 1:
        raise ValueError(f"groups (={groups}) must be >= 1")
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if channels < 1 or channels % groups:
            raise ValueError(f"{name} (={channels}) must be a multiple of groups (={groups}), and >= 1")


def settle_margins(
    padding: Sizes | str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """What padding adds before and after each dimension."""
    if not isinstance(padding, str):
        return [(size, size) for size in sizes("padding", padding, len(kernel), 0)]
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding != "same":
        raise ValueError(f"padding (={padding!r}) must be numbers, 'same' or 'valid'")
    if any(step != 1 for step in stride):
        raise ValueError(f"stride (={stride[0] if len(set(stride)) == 1 else stride!r}) must be 1 with padding='same'")
    total = [(size - 1) * gap for size, gap in zip(kernel, dilation, strict=True)]
    return [(size // 2, size - size // 2) for size in total]  # an even reach leaves one more, which torch puts after


def planar(channels: tuple[int, int], margins: Sequence[tuple[int, int]], groups: int, *numbers: Sequence[int]) -> ConvWindow:
    """The window of a convolution in one or two dimensions; one is two of which the first has size 1.

    ``channels`` are those that go in and come out; ``numbers`` are kernel, stride and dilation.
    """
    kernel, stride, dilation = ((1, each[0]) if len(each) == 1 else (each[0], each[1]) for each in numbers)
    (top, bottom), (left, right) = margins if len(margins) == 2 else ((0, 0), margins[0])
    return ConvWindow(*channels, kernel, stride, (top, left), (bottom, right), dilation, groups)


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
    """The window that the arguments of a torch layer in one or two dimensions ask for."""
    require_channels(in_channels, out_channels, groups)
    given = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    numbers = [sizes(name, value, dimensions, 1) for name, value in given.items()]
    return planar((in_channels, out_channels), settle_margins(padding, *numbers), groups, *numbers)
