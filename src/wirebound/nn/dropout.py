"""Dropout whose numbers have names, so that a run is the same on every path, device and number of threads.

Feature f of sample b in call n of a training goes by half word f · lanes + b of the stream (seed, index, n), ``lanes``
being the batch rounded up to 8; it is left out if that half is below p · 2¹⁶. ``csrc/fused_dropout.inc.cpp`` is the same.
"""

import torch
from torch import Tensor, nn

from wirebound.ops import backend_on
from wirebound.ops.philox import MAX_WIRINGS, Stream, stream_of

_HALF, _MOST_SEEDS = 1 << 16, 1 << 31


class Dropout(nn.Dropout):
    """``nn.Dropout`` for the last dimension of its input, as a function of (seed, index, number of the call).

    Args:
        p: share of the features that is left out in training, in [0, 1); those that stay are scaled by 1/(1 − p).
        seed: decides which.
        index: number of this module among those with the same seed: two with the same numbers leave out the same.
    """

    calls: Tensor  # of forward passes in training

    def __init__(self, p: float = 0.5, seed: int = 0, index: int = 0) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"p (={p}) must be in [0, 1)")
        if not 0 <= seed < _MOST_SEEDS:
            raise ValueError(f"seed (={seed}) must be in [0, {_MOST_SEEDS})")
        if not 0 <= index < MAX_WIRINGS:
            raise ValueError(f"index (={index}) must be in [0, {MAX_WIRINGS})")
        super().__init__(p)
        self.seed, self.index = seed, index
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64, device="cpu"))

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or not self.p:
            return input
        # In a graph, and where asking would wait for the device, the number of the call stays a tensor.
        stays = torch.compiler.is_compiling() or not self.calls.is_cpu
        call = self.calls.clone() if stays else int(self.calls)
        self.calls += 1
        kept = self.kept(call, input.numel() // input.shape[-1], input.shape[-1], input.device)
        return input * (kept.view(input.shape).to(input.dtype) * (1 / (1 - self.p)))

    def kept(self, call: int | Tensor, batch: int, features: int, device: torch.device) -> Tensor:
        """[batch, features]: which are kept in a call."""
        lanes = (batch + 7) // 8 * 8
        stream = stream_of(Stream.DROPOUT, self.index)
        words = backend_on(device).words(self.seed, stream, call, features * lanes // 2, device)
        halves = torch.stack((words & (_HALF - 1), words >> 16), dim=1).view(features, lanes)
        return halves[:, :batch].t() >= round(self.p * _HALF)

    def extra_repr(self) -> str:
        return f"p={self.p}, seed={self.seed}, index={self.index}"
