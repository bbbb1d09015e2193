"""Which kernel computes a layer: the sparse one, whose time grows with the connections, or dense blocks (``csrc/dense.inc.cpp``,
``blocks.py``), whose time is about that of the dense layer whatever is active.

The numbers are where the two take the same time, forward and both gradients on one thread; ``benchmarks/crossover.py`` measures
it. They may depend on shapes, never on threads: the two add up in different orders, and threads must not change a result.
"""

# 1024→1024: dense ÷ sparse is 0.91 at 70 % with batch 32 and falls as the density grows, dense ÷ blocks is about 0.85 there
# and 0.98 with batch 128, where dense ÷ sparse is 1.4 at 55 %. A 5×5 convolution of 64 channels: 1.18 at 55 %, 0.96 by blocks.
LINEAR_DENSITY, CONV_DENSITY = 0.7, 0.65


def linear_by_blocks(n_in: int, n_out: int, connections: int) -> bool:
    """Whether a linear layer is faster by dense blocks."""
    return connections >= LINEAR_DENSITY * n_in * n_out


def conv_by_blocks(n_in: int, n_out: int, connections: int) -> bool:
    """Whether a convolution, whose matrix is [n_out, n_in], is faster by dense blocks."""
    return connections >= CONV_DENSITY * n_in * n_out
