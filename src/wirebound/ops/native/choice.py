"""Which kernel computes a layer: the sparse one, whose time grows with the connections, or dense blocks (``csrc/dense.inc.cpp``,
``blocks.py``), whose time is about that of the dense layer whatever is active.

The numbers are where the two take the same time, forward and both gradients on one thread; ``benchmarks/crossover.py`` measures
it. They may depend on shapes, never on threads: the two add up in different orders, and threads must not change a result.
"""

# 1024→1024: sparse ÷ blocks is 0.94 at 70 % and 1.04 at 80 % with batch 32, 0.93 at 50 % and 1.1 at 60 % with batch 128.
LARGE_BATCH = 48
LINEAR_DENSITY, LINEAR_DENSITY_LARGE_BATCH = 0.75, 0.57
CONV_DENSITY = 0.6


def linear_by_blocks(batch: int, n_in: int, n_out: int, connections: int) -> bool:
    """Whether a linear layer is faster by dense blocks."""
    share = LINEAR_DENSITY if batch < LARGE_BATCH else LINEAR_DENSITY_LARGE_BATCH
    return connections >= share * n_in * n_out


def conv_by_blocks(n_in: int, n_out: int, connections: int) -> bool:
    """Whether a convolution, whose matrix is [n_out, n_in], is faster by dense blocks."""
    return connections >= CONV_DENSITY * n_in * n_out
