"""What the recurrent ops work on: one direction of one layer, and the gradients of a pass through it.

LSTM, gates in torch's order:          GRU:
    i = σ(W_ii x + W_hi h)                 r = σ(W_ir x + W_hr h)
    f = σ(W_if x + W_hf h)                 z = σ(W_iz x + W_hz h)
    g = tanh(W_ig x + W_hg h)              n = tanh(W_in x + r ⊙ (W_hn h))
    o = σ(W_io x + W_ho h)                 h ← (1 − z) ⊙ n + z ⊙ h
    c ← f ⊙ c + i ⊙ g
    h ← o ⊙ tanh(c)                    Each product has its bias.

RNN, φ being tanh ("rnn_tanh") or max(0, ·) ("rnn_relu"):  h ← φ(W_ih x + W_hh h)

All sequences are [time, batch, features] tensors with any strides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from wirebound.ops.layout import LayerIndex

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@dataclass(frozen=True)
class Recurrence:
    """One direction of one layer: its two sparse matrices, [gates · hidden, n_in] and [gates · hidden, hidden]."""

    kind: str  # a key of GATES
    hidden: int
    reverse: bool  # time runs from each sequence's end to its start
    lengths: Tensor | None  # int64 on the CPU, the steps of each sequence; None: all have all steps
    theta_ih: Tensor
    index_ih: LayerIndex
    theta_hh: Tensor
    index_hh: LayerIndex
    bias_ih: Tensor | None
    bias_hh: Tensor | None

    @property
    def rows(self) -> int:
        return GATES[self.kind] * self.hidden

    def order(self, steps: int) -> range:
        """The steps in the order in which they are taken."""
        return range(steps - 1, -1, -1) if self.reverse else range(steps)

    def running(self, x: Tensor) -> Tensor | None:
        """Whether each sequence runs in each step, [steps, batch, 1]; None: all do."""
        if self.lengths is None:
            return None
        steps = torch.arange(x.shape[0], device=x.device)
        return (steps[:, None] < self.lengths.to(x.device)).unsqueeze(2)

    def samples(self, x: Tensor) -> int:
        """Steps of all sequences of x [time, batch, features] together."""
        return x.shape[0] * x.shape[1] if self.lengths is None else int(self.lengths.sum())


class Kept(NamedTuple):
    """States after the last step, and what the backward pass needs, in a form that each implementation has for itself."""

    h_n: Tensor
    c_n: Tensor | None
    kept: tuple[Tensor, ...]


class WatchedGradients(NamedTuple):
    """From which the gradient of any weight follows, active or not: rows are steps × sequences."""

    gates_ih: Tensor  # gradient of W_ih x + b_ih
    gates_hh: Tensor  # gradient of W_hh h + b_hh
    h_before: Tensor  # h that went into each step


class RecurrentGradients(NamedTuple):
    dx: Tensor | None
    dh_0: Tensor
    dc_0: Tensor | None
    dtheta_ih: Tensor
    dtheta_hh: Tensor
    dbias_ih: Tensor | None
    dbias_hh: Tensor | None
    watched: WatchedGradients | None
