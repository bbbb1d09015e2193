"""Which kernel computes a layer: the sparse one, whose time grows with the connections, or one whose time is that of all
positions, whatever is active: dense blocks (``csrc/dense.inc.cpp``, ``blocks.py``), or for convolutions with small kernels
Winograd's algorithm (``csrc/conv_winograd.inc.cpp``).

The numbers are where two of them take the same time, forward and both gradients on one thread; ``benchmarks/crossover.py``
measures it. They may depend on shapes, never on threads or the batch: kernels add up in different orders, and neither must
change a result.
"""

from wirebound.ops.layer_shapes import ConvWindow

# 1024→1024: dense ÷ sparse is 0.91 at 70 % with batch 32 and falls as the density grows, dense ÷ blocks is about 0.85 there
# and 0.98 with batch 128, where dense ÷ sparse is 1.4 at 55 %. A 5×5 convolution of 64 channels: 1.18 at 55 %, 0.96 by blocks.
LINEAR_DENSITY, CONV_DENSITY = 0.7, 0.65
# A multiplication of the sparse kernel takes as long as 1/1.7 of one of Winograd's, by ten shapes with both instruction sets.
WINOGRAD_COST = 1.7
_POINTS = 64  # multiplications of a tile
_FEWEST_CHANNELS = 16  # a vector has as many lanes
_MOST_PAIRS = 128 * 128  # of channels: 4 MB of points
_MOST_TILES = 256  # of an image, which are computed together


def linear_by_blocks(n_in: int, n_out: int, connections: int) -> bool:
    """Whether a linear layer is faster by dense blocks."""
    return connections >= LINEAR_DENSITY * n_in * n_out


def conv_by_blocks(n_in: int, n_out: int, connections: int) -> bool:
    """Whether a convolution, whose matrix is [n_out, n_in], is faster by dense blocks."""
    return connections >= CONV_DENSITY * n_in * n_out


def conv_by_winograd(window: ConvWindow, height: int, width: int, connections: int) -> bool:
    """Whether a convolution of images of this size can be computed by Winograd's algorithm, and is faster so."""
    kernel, pairs = window.kernel[0], window.in_channels * window.out_channels
    if window.kernel not in ((3, 3), (5, 5)) or window.groups != 1 or {*window.stride, *window.dilation} != {1}:
        return False
    side, rows, columns = 9 - kernel, window.out_size(height, 0), window.out_size(width, 1)
    tiles = -(-rows // side) * -(-columns // side)
    if min(window.in_channels, window.out_channels) < _FEWEST_CHANNELS or pairs > _MOST_PAIRS or not 0 < tiles <= _MOST_TILES:
        return False
    return connections * rows * columns >= WINOGRAD_COST * _POINTS * tiles * pairs
