"""Images for perceptrons, moved and, where left and right are alike, mirrored: the usual way to train on CIFAR-10."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.engine.modules import Batch, data_order
from wirebound.ops import backend_on
from wirebound_lab.data import Dataset
from wirebound_lab.run.config import ConfigError

AUGMENTATIONS = ("none", "crop", "crop-flip")
BORDER = 4  # pixels by which an image is moved at most, where nothing else is said
_EPOCHS = 1 << 20  # more than any run has


class Pieces:
    """Training images at random places in a border of zeros, each standardised; if ``flip``, every other one is mirrored."""

    def __init__(self, data: Dataset, seed: int, border: int = BORDER, flip: bool = True) -> None:
        side = data.shape[-1]
        if data.shape[-2] != side:
            augment = AUGMENTATIONS[2 if flip else 1]
            raise ConfigError(f"augment (={augment!r}) needs square images, {data.name} has {data.shape[-2]} x {side}")
        self.seed, self.side, self.border, self.flip, self.y = seed, side, border, flip, data.train_y
        self.images = _bordered(data.train_x, border)

    def batches(self, size: int, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from number ``start`` on; what is drawn is a function of (seed, epoch)."""
        count = len(self.y)
        generator = torch.Generator().manual_seed(self.seed % (1 << 32) * _EPOCHS + epoch)
        places = torch.randint(2 * self.border + 1, (2, count), generator=generator)
        mirrored = torch.rand(count, generator=generator) < (0.5 if self.flip else 0.0)
        order = data_order(count, self.seed, epoch)
        for first in range(start * size, count, size):
            part = slice(first, first + size)
            chosen, top, left = order[part], places[0, part], places[1, part]
            yield Batch((self._cut(self.images, chosen, top, left, mirrored[part]),), self.y[chosen])

    def middle(self, images: Tensor) -> Tensor:
        """Images as they are, standardised in the same border."""
        count = len(images)
        place = torch.full((count,), self.border)
        return self._cut(_bordered(images, self.border), torch.arange(count), place, place, torch.zeros(count, dtype=torch.bool))

    def _cut(self, images: Tensor, chosen: Tensor, top: Tensor, left: Tensor, mirrored: Tensor) -> Tensor:
        pieces = backend_on(images.device).cut_pieces(images, chosen, top, left, mirrored, None, self.side)
        return pieces.flatten(1)


def _bordered(images: Tensor, border: int) -> Tensor:
    """[N, channels, side, side] in bytes with zeros around them."""
    images = images if images.dim() == 4 else images[:, None]
    return F.pad(images, (border,) * 4)
