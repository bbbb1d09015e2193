"""Torch's recurrent cells with K connections in their two matrices: one step of the recurrent layer of their kind."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from wirebound.nn.recurrent import RecurrentMatrices
from wirebound.nn.trace import one_node, recorded
from wirebound.ops import GATES
from wirebound.wiring import LayerShape


class SparseCell(RecurrentMatrices):
    """A cell of torch with exactly K connections in its two matrices.

    Args:
        input_size, hidden_size, bias: as in torch.
        options: connectivity, budget and the other fields of ``WiringOptions``.
    """

    arguments: ClassVar[tuple[str, ...]] = ("input_size", "hidden_size", "bias")

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, **options: Any) -> None:
        super().__init__()
        self._set(input_size=input_size, hidden_size=hidden_size, bias=bias)
        rows = GATES[self.kind] * hidden_size
        self.hold([LayerShape("weight_ih", rows, input_size), LayerShape("weight_hh", rows, hidden_size)], bias, options)

    @one_node
    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """h after one step, or (h, c) of an LSTM, as in torch."""
        state = self._states(hx, "state")
        if not recorded(input):
            self._require_input(input, 2)
            expected = (*input.shape[:-1], self.hidden_size)
            for given in state:
                if given is not None and given.shape != expected:
                    raise ValueError(f"the shape of a state (={tuple(given.shape)}) must be {expected}")
        starts = tuple(None if given is None else given.unsqueeze(0) for given in state)
        _, ends = self._run(input.unsqueeze(0), starts, None, None)
        ends = [end.squeeze(0) for end in ends]
        return tuple(ends) if self.kind == "lstm" else ends[0]


class SparseLSTMCell(SparseCell):
    """``nn.LSTMCell`` with exactly K connections in its two matrices (arguments: ``SparseCell``)."""

    kind, dense_class = "lstm", nn.LSTMCell


class SparseGRUCell(SparseCell):
    """``nn.GRUCell`` with exactly K connections in its two matrices (arguments: ``SparseCell``)."""

    kind, dense_class = "gru", nn.GRUCell


class SparseRNNCell(SparseCell):
    """``nn.RNNCell`` with exactly K connections in its two matrices (arguments: ``SparseCell``, and ``nonlinearity``)."""

    dense_class = nn.RNNCell
    arguments = (*SparseCell.arguments, "nonlinearity")

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        self._set_kind(nonlinearity)
        super().__init__(input_size, hidden_size, bias, **options)
