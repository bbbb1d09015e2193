"""Plain torch layers computed by their weights that are not 0, for methods on plain models that keep the others at 0.

Weights and their gradients stay whole matrices. A weight that is 0 gets the gradient 0, so these layers are for methods that
would not use it (``Method.zeros_learn`` is False): a pruned weight stays 0, and a dormant one of soft-DEEP R moves by noise
alone. An LSTM can also give all weights their gradients, which takes longer, for ℓ1-shrinkage. Where too many weights are
not 0 for sparse kernels to be faster, torch computes; or, for convolutions that have it, Winograd's algorithm, which leaves
no weight out.
"""

import functools
from typing import Any, cast

import torch
from torch import Tensor, nn

from wirebound import ops
from wirebound.ops.layer_shapes import ConvWindow
from wirebound.ops.layout import LayerIndex
from wirebound.ops.registered import conv2d, linear, recurrent
from wirebound.ops.registered.conv import numbers_of

MOST = 0.4  # share of the weights that are not 0, up to which sparse kernels win on every processor that was measured
MOST_WHOLE = 0.3  # the same where all weights get their gradients; timed by hand, on one processor with AVX-512
# Examples from which on a linear layer's weights are worth looking through. With 128, on 2304→384 with 2 % of the weights,
# finding them takes 8 ms, as long as all products of the dense layer (timed by hand).
FEWEST_EXAMPLES = 512


def are_few(*weights: Tensor, most: float = MOST) -> bool:
    """Whether so few of these weights are not 0 that sparse kernels are faster."""
    return sum(int(torch.count_nonzero(w)) for w in weights) <= most * sum(w.numel() for w in weights)


def nonzero_of(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """θ (here the weights themselves), packed rows and column pointers of a weight [n_out, ...] without its zeros."""
    columns_first = weight.flatten(1).t()
    columns, rows = columns_first.detach().nonzero(as_tuple=True)
    starts = torch.arange(columns_first.shape[0] + 1, device=weight.device)
    return columns_first[columns, rows], rows.to(torch.int32), torch.searchsorted(columns, starts)


class NonzeroLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if x.numel() < FEWEST_EXAMPLES * self.in_features or not are_few(self.weight):
            return super().forward(x)
        y = linear(x.reshape(-1, self.in_features), *nonzero_of(self.weight), self.bias, 0, self.out_features, False)
        return y.view(*x.shape[:-1], self.out_features)


def all_of(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same with its zeros: every position is a connection."""
    return (weight.flatten(1).t().reshape(-1), *_whole_index(weight[0].numel(), len(weight), weight.device))


@functools.lru_cache(maxsize=16)
def _whole_index(n_in: int, n_out: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Packed rows and column pointers of a matrix [n_out, n_in] with all its connections."""
    rows = torch.arange(n_out, dtype=torch.int32, device=device).repeat(n_in)
    return rows, torch.arange(0, n_in * n_out + 1, n_out, device=device)


class FastConv2d(nn.Conv2d):
    """``nn.Conv2d``, by Winograd's algorithm where the backend has it and it is faster."""

    def forward(self, x: Tensor) -> Tensor:
        if self.all_at_once(x, self.weight.numel()):
            return self.convolve(x, all_of(self.weight))
        return super().forward(x)

    @property
    def window(self) -> ConvWindow | None:
        """None if the padding is given by name, or not of zeros."""
        if isinstance(self.padding, str) or self.padding_mode != "zeros":
            return None
        sides = (self.kernel_size, self.stride, self.padding, self.padding, self.dilation)
        shape: Any = (self.in_channels, self.out_channels, *sides, self.groups)
        return ConvWindow(*shape)

    def all_at_once(self, x: Tensor, connections: int) -> bool:
        """Whether all weights take no longer than so many."""
        window = self.window
        if window is None or x.dim() != 4:
            return False
        return ops.backend_of(x).convolves_all(window, x.shape[2], x.shape[3], connections)

    def convolve(self, x: Tensor, layer: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        assert self.window is not None
        return conv2d(x.contiguous(), *layer, self.bias, 0, numbers_of(self.window), False)


class NonzeroConv2d(FastConv2d):
    def forward(self, x: Tensor) -> Tensor:
        few = self.window is not None and are_few(self.weight)
        if few and not self.all_at_once(x, int(torch.count_nonzero(self.weight))):
            return self.convolve(x, nonzero_of(self.weight))
        return super().forward(x)


def lstm_is_sparse(lstm: nn.LSTM, zeros_learn: bool) -> bool:
    """Whether ``lstm_by_nonzero`` is faster than the LSTM itself."""
    most = MOST_WHOLE if zeros_learn and torch.is_grad_enabled() else MOST
    return are_few(*_matrices_of(lstm), most=most)


def _matrices_of(lstm: nn.LSTM) -> tuple[Tensor, Tensor]:
    return lstm.get_parameter("weight_ih_l0"), lstm.get_parameter("weight_hh_l0")


def lstm_by_nonzero(x: Tensor, lstm: nn.LSTM, lengths: Tensor, reverse: bool, zeros_learn: bool = False) -> Tensor:
    """y [steps, batch, hidden] of an LSTM of one layer and direction for x [steps, batch, features], from states of 0.
    ``zeros_learn``: weights of 0 get their gradients too."""
    if zeros_learn and torch.is_grad_enabled():
        biases = (lstm.bias_ih_l0, lstm.bias_hh_l0)
        return cast(Tensor, _WholeGradientLSTM.apply(x, *_matrices_of(lstm), *biases, lengths, reverse))
    start = x.new_zeros(x.shape[1], lstm.hidden_size)
    ih, hh = map(nonzero_of, _matrices_of(lstm))
    settings = (0, 0, "lstm", lstm.hidden_size, reverse, False, torch.is_grad_enabled())
    y, *_ = recurrent(x, start, start, *ih, lstm.bias_ih_l0, *hh, lstm.bias_hh_l0, lengths, *settings)
    return y


class _WholeGradientLSTM(torch.autograd.Function):
    """An LSTM computed by its nonzero weights; from its backward pass, the gradients of all of them by two dense products."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ih: Tensor, hh: Tensor, bias_ih: Tensor, bias_hh: Tensor, lengths: Tensor, reverse: bool
    ) -> Tensor:
        hidden = hh.shape[1]
        cell = ops.Recurrence("lstm", hidden, reverse, lengths, *_as_layer(ih), *_as_layer(hh), bias_ih, bias_hh)
        start, y = x.new_zeros(x.shape[1], hidden), x.new_empty(*x.shape[:2], hidden)
        outcome = ops.backend_of(x).recurrent_forward(cell, x, start, start, y, True)
        ctx.cell = cell
        ctx.save_for_backward(x, start, *outcome.kept)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, start, *kept = ctx.saved_tensors
        states = (start, start, tuple(kept), gradients[0], None, None)
        found = ops.backend_of(x).recurrent_backward(ctx.cell, x, *states, ctx.needs_input_grad[0], True)
        assert found.watched is not None
        return (found.dx, *found.watched.of_weights(x), found.dbias_ih, found.dbias_hh, None, None)


def _as_layer(weight: Tensor) -> tuple[Tensor, LayerIndex]:
    theta, packed_rows, colptr = nonzero_of(weight.detach())
    return theta, LayerIndex(packed_rows, colptr, 0, len(theta), 0, weight.shape[1])
