"""What the ops of networks for images work on, as plain numbers."""

from typing import NamedTuple


class PoolNorm(NamedTuple):
    """Pooling, the largest of each window, and local response normalisation over channels, x · d^−β with
    d = bias + α Σ x² over the channels up to ``radius`` away."""

    window: int = 3  # its side
    step: int = 2  # from one window to the next; windows begin within the image, and end where it does
    radius: int = 4
    alpha: float = 0.001 / 9
    beta: float = 0.75
    bias: float = 1.0

    def pooled(self, size: int) -> int:
        """Windows along an axis: all that begin within it, but none that another holds (torch's ``ceil_mode``)."""
        count = -(-max(0, size - self.window) // self.step) + 1
        return count - ((count - 1) * self.step >= size)


class StemShape(NamedTuple):
    """A dense convolution with stride 1, the same number of zeros on all sides, and what follows it."""

    in_channels: int
    out_channels: int
    kernel: int
    padding: int
    after: PoolNorm

    def out_size(self, size: int) -> int:
        """Outputs of the convolution along an axis."""
        return size + 2 * self.padding - self.kernel + 1
