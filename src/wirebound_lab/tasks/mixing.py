"""Mixed examples (mixup, Zhang et al. 2018): each example of a batch with the one before it, inputs and targets alike.

    λ ~ Beta(strength, strength), one for each batch
    x ← λ x + (1 − λ) x'        y ← λ y + (1 − λ) y'        x', y': the example before it in the batch

The order of the data is random, so that one is as good as any other.
"""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.engine.modules import Batch
from wirebound.methods import Setting

MIXUP = Setting("mixup", "float", 0.0, "examples are mixed in pairs, by shares from Beta(mixup, mixup); 0: not at all", least=0)


def mixed(batches: Iterator[Batch], strength: float, classes: int, seed: int, epoch: int, start: int) -> Iterator[Batch]:
    """Batches of one input each, mixed, the first of which has number ``start`` in its epoch. Shares are a function of
    (seed, epoch, number)."""
    shares = np.random.default_rng((seed, epoch))
    for _ in range(start):
        shares.beta(strength, strength)
    for batch in batches:
        (x,), y = batch.inputs, as_probabilities(batch.y, classes)
        share = shares.beta(strength, strength)
        yield Batch((torch.lerp(x.roll(1, 0), x, share),), torch.lerp(y.roll(1, 0), y, share))


def as_probabilities(y: Tensor, classes: int) -> Tensor:
    """[examples, classes], from labels or from what is such already."""
    return y if y.is_floating_point() else F.one_hot(y, classes).float()
