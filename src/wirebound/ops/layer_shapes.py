"""What the ops of layers work on, as plain numbers and tensors. Sequences are [time, batch, features], any strides.

LSTM, gates in torch's order:          GRU:
    i = σ(W_ii x + W_hi h)                 r = σ(W_ir x + W_hr h)
    f = σ(W_if x + W_hf h)                 z = σ(W_iz x + W_hz h)
    g = tanh(W_ig x + W_hg h)              n = tanh(W_in x + r ⊙ (W_hn h))
    o = σ(W_io x + W_ho h)                 h ← (1 − z) ⊙ n + z ⊙ h
    c ← f ⊙ c + i ⊙ g
    h ← o ⊙ tanh(c)                    Each product has its bias.

RNN, φ being tanh ("rnn_tanh") or max(0, ·) ("rnn_relu"):  h ← φ(W_ih x + W_hh h)
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.ops.layout import LayerIndex

Gradients = tuple[Tensor | None, Tensor | None]  # to the input and to θ
class CsrRows(NamedTuple):
    """Sparse rows of input: those of a batch one after another, columns within a row in any order. All contiguous."""

    values: Tensor
    columns: Tensor  # int64
    starts: Tensor  # int64, where each row starts in the two, and how many there are

    @property
    def batch(self) -> int:
        return self.starts.numel() - 1

    def sample_of(self) -> Tensor:
        """The row of each nonzero."""
        rows = torch.arange(self.batch, device=self.starts.device)
        return torch.repeat_interleave(rows, self.starts.diff(), output_size=self.columns.numel())


GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


class ConvWindow(NamedTuple):
    """The shape of a sparse convolution, height before width everywhere.

    Its matrix has ``out_channels`` rows and in_channels/groups · kernel height · kernel width columns; column
    (c · kernel height + ky) · kernel width + kx of row o is the weight [o, c, ky, kx] of the dense convolution.
    """

    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]  # zeros above and to the left of the input
    after: tuple[int, int]  # and below and to the right
    dilation: tuple[int, int]
    groups: int

    @property
    def group_channels(self) -> int:
        """Input channels that one output channel sees."""
        return self.in_channels // self.groups

    def reach(self, axis: int) -> int:
        """Inputs from the first to the last that one output sees."""
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def out_size(self, size: int, axis: int) -> int:
        """Outputs along an axis of ``size`` inputs; below 1 if the kernel does not fit."""
        return (size + self.before[axis] + self.after[axis] - self.reach(axis)) // self.stride[axis] + 1

    def margins(self, height: int, width: int) -> tuple[int, int, int, int]:
        """The padding that makes an input exactly as large as its outputs see it, in the order of ``F.pad``; negative
        where the last rows or columns are seen by no output."""
        sizes = (height, width)
        seen = [(self.out_size(sizes[axis], axis) - 1) * self.stride[axis] + self.reach(axis) for axis in (0, 1)]
        (top, left), (bottom, right) = self.before, (seen[axis] - sizes[axis] - self.before[axis] for axis in (0, 1))
        return left, right, top, bottom

    def pad(self, x: Tensor) -> Tensor:
        """The input exactly as its outputs see it."""
        return F.pad(x, self.margins(x.shape[-2], x.shape[-1]))


@dataclass(frozen=True)
class Recurrence:
    """One direction of one recurrent layer: its two sparse matrices, [gates · hidden, n_in] and [gates · hidden, hidden]."""

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

    @property
    def is_simple(self) -> bool:
        """Whether it has no gates."""
        return GATES[self.kind] == 1

    def order(self, steps: int) -> range:
        """The steps in the order in which they are taken."""
        return range(steps - 1, -1, -1) if self.reverse else range(steps)

    def running(self, x: Tensor) -> Tensor | None:
        """Whether each sequence runs in each step, [steps, batch, 1]; None: all do."""
        if self.lengths is None:
            return None
        return (torch.arange(x.shape[0], device=x.device)[:, None] < self.lengths.to(x.device)).unsqueeze(2)


class Kept(NamedTuple):
    """States after the last step, and what the backward pass needs, in a form that each backend has for itself."""

    h_n: Tensor
    c_n: Tensor | None
    kept: tuple[Tensor, ...]


class WatchedGradients(NamedTuple):
    """From which the gradient of any weight follows, active or not: rows are steps × sequences."""

    sums_ih: Tensor  # gradient of W_ih x + b_ih, [rows, hidden, gates]
    sums_hh: Tensor  # gradient of W_hh h + b_hh; may be the same tensor
    h_before: Tensor  # h that went into each step

    @property
    def gates_ih(self) -> Tensor:
        """[rows, gates · hidden], in the order of torch's weights."""
        return self.sums_ih.transpose(1, 2).flatten(1)

    @property
    def gates_hh(self) -> Tensor:
        return self.sums_hh.transpose(1, 2).flatten(1)

    def of_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of all weights of both matrices. Products are brought into torch's order, not what is multiplied; the
        other way round a product with few inputs takes half as long again."""
        pairs = ((self.sums_ih, x.reshape(-1, x.shape[2])), (self.sums_hh, self.h_before))
        products = ((source.t() @ sums.flatten(1)).view(-1, *sums.shape[1:]) for sums, source in pairs)
        of_ih, of_hh = (product.permute(2, 1, 0).flatten(0, 1) for product in products)
        return of_ih, of_hh


class RecurrentGradients(NamedTuple):
    dx: Tensor | None
    dh_0: Tensor
    dc_0: Tensor | None
    dtheta_ih: Tensor
    dtheta_hh: Tensor
    dbias_ih: Tensor | None
    dbias_hh: Tensor | None
    watched: WatchedGradients | None


# The arguments of ``recurrent_forward``: cell, x, h_0, c_0, y, keep; and of ``recurrent_backward``: cell, x, h_0, c_0, kept,
# dy, dh_n, dc_n, need_dx, watched.
ForwardCall = tuple[Recurrence, Tensor, Tensor, Tensor | None, Tensor, bool]
BackwardCall = tuple[
    Recurrence, Tensor, Tensor, Tensor | None, tuple[Tensor, ...], Tensor | None, Tensor | None, Tensor | None, bool, bool
]  # fmt: skip


class StackLayer(NamedTuple):
    """One layer of a stack: its part of a wiring, its bias, and the function behind it (numbers of csrc/wirebound.h)."""

    n_in: int
    n_out: int
    wiring: int  # which of the stack's wirings
    first: int  # its first column among those of the wiring
    bias: Tensor | None
    activation: int


class StackWiring(NamedTuple):
    """The arrays of a whole wiring."""

    theta: Tensor
    packed_rows: Tensor
    colptr: Tensor
    covered: bool  # every layer of it is in the stack
    bound: bool  # its θ is bound to its sign


class Stack(Protocol):
    """Sparse layers that follow each other, as a backend holds them."""

    n_wirings: int

    def shapes(self, batch: int) -> tuple[tuple[int, ...], ...]:
        """Of the input, of what the backward pass needs beside it, and of θ of each wiring."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The output for x of shape [batch, n_in], and what the backward pass needs beside x."""

    def backward(self, x: Tensor, kept: Tensor, dy: Tensor, need_dx: bool) -> tuple[Tensor | None, list[Tensor]]:
        """Gradients to the input, and to θ of each wiring and each bias in turn."""
