"""The arguments of torch's convolutions, checked and brought into the form that the ops take."""

from __future__ import annotations

from collections.abc import Sequence

from wirebound.ops import Window

Sizes = int | Sequence[int]


def _sizes(name: str, value: Sizes, dimensions: int, least: int) -> tuple[int, int]:
    """Height and width of an argument that may be one number for both."""
    given = (value,) * dimensions if isinstance(value, int) else tuple(value)
    if len(given) == 1:
        given *= dimensions
    if len(given) != dimensions or not all(isinstance(size, int) and size >= least for size in given):
        raise ValueError(f"{name} (={value!r}) must be {dimensions} whole numbers >= {least}, or one for all")
    return (given[0], given[1]) if dimensions == 2 else (0 if least == 0 else 1, given[0])


def settle_window(
    dimensions: int,
    in_channels: int,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> Window:
    """The window of a convolution in one or two dimensions; one is two of which the first has size 1."""
    if groups < 1:
        raise ValueError(f"groups (={groups}) must be >= 1")
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if channels < 1 or channels % groups:
            raise ValueError(f"{name} (={channels}) must be a multiple of groups (={groups}), and >= 1")
    kernel = _sizes("kernel_size", kernel_size, dimensions, 1)
    steps = _sizes("stride", stride, dimensions, 1)
    spread = _sizes("dilation", dilation, dimensions, 1)
    if not isinstance(padding, str):
        before = after = _sizes("padding", padding, dimensions, 0)
    elif padding == "valid":
        before = after = (0, 0)
    elif padding == "same":
        if steps != (1, 1):
            raise ValueError(f"stride (={stride!r}) must be 1 with padding='same'")
        # An even reach leaves one more to pad: torch puts it below and to the right.
        total = [(size - 1) * gap for size, gap in zip(kernel, spread, strict=True)]
        before = (total[0] // 2, total[1] // 2)
        after = (total[0] - before[0], total[1] - before[1])
    else:
        raise ValueError(f"padding (={padding!r}) must be numbers, 'same' or 'valid'")
    return Window(in_channels, out_channels, kernel, steps, before, after, spread, groups)
