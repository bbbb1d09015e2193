"""What networks for images are fed with, in plain torch; their blocks are plain torch in ``nn/image_blocks.py``."""

import torch
from torch import Tensor

from wirebound.ops.image_shapes import PoolNorm, StemShape


class ReferenceImages:
    has_image_blocks = False  # ``stem_…`` and ``norm_pool_…`` may be called

    def cut_pieces(
        self, images: Tensor, chosen: Tensor, top: Tensor, left: Tensor, mirrored: Tensor, contrast: Tensor | None, side: int
    ) -> Tensor:
        """Square pieces [n, channels, side, side] of the chosen of some images of bytes, as float32.

        Each begins at its row ``top`` and column ``left``, is mirrored or not, has ``contrast`` times its distance from
        the mean of each channel, and then mean 0 and deviation 1 (``standardise``).
        """
        steps = torch.arange(side, device=images.device)
        rows = top[:, None] + steps
        columns = left[:, None] + torch.where(mirrored[:, None], side - 1 - steps, steps)
        channels = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
        taken = images[chosen[:, None, None, None], channels, rows[:, None, :, None], columns[:, None, None, :]]
        x = taken.to(torch.float32).div_(255)
        if contrast is not None:
            mean = x.mean((2, 3), keepdim=True)
            x = (x - mean) * contrast[:, None, None, None] + mean
        return standardise(x)

    def stem_forward(
        self, x: Tensor, weight: Tensor, bias: Tensor, shape: StemShape
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The block's output, and what its backward pass needs."""
        raise NotImplementedError

    def stem_backward(
        self, x: Tensor, kept: tuple[Tensor, Tensor], dy: Tensor, shape: StemShape
    ) -> tuple[Tensor, Tensor]:
        """The gradients to weight and bias."""
        raise NotImplementedError

    def norm_pool_forward(self, x: Tensor, shape: PoolNorm) -> tuple[Tensor, Tensor]:
        """The block's output, and what its backward pass needs beside x."""
        raise NotImplementedError

    def norm_pool_backward(self, x: Tensor, kept: Tensor, dy: Tensor, shape: PoolNorm) -> Tensor:
        """The gradient to x."""
        raise NotImplementedError


def standardise(x: Tensor) -> Tensor:
    """Each image with mean 0 and deviation 1; the deviation counts as 1/√n at least, for images of one colour."""
    flat = x.flatten(1)
    deviation = flat.std(1, correction=0).clamp_(min=flat.shape[1] ** -0.5)
    return ((flat - flat.mean(1, keepdim=True)) / deviation.unsqueeze(1)).view_as(x)
