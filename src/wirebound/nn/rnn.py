"""``SparseRNN``: ``nn.RNN`` with K connections instead of its matrices."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from wirebound.nn.recurrent import SparseRecurrent
from wirebound.nn.trace import one_node

NONLINEARITIES = ("tanh", "relu")


def simple_kind(nonlinearity: str) -> str:
    """The kind of recurrence that torch's argument asks for."""
    if nonlinearity not in NONLINEARITIES:
        raise ValueError(f"nonlinearity (={nonlinearity!r}) must be one of {NONLINEARITIES}")
    return f"rnn_{nonlinearity}"


class SparseRNN(SparseRecurrent):
    """``nn.RNN`` with exactly K connections in all its matrices.

    Args:
        input_size, hidden_size, num_layers, nonlinearity, bias, batch_first, dropout, bidirectional: as in torch.
        options: connectivity, budget, allocation, seed, init, device, dtype, wiring, part and owner, as in
            ``SparseRecurrent``.
    """

    dense_class = nn.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **options: Any,
    ) -> None:
        self.kind, self.nonlinearity = simple_kind(nonlinearity), nonlinearity
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **options)

    def _own_options(self) -> dict[str, Any]:
        return {"nonlinearity": self.nonlinearity}

    @one_node
    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(output, h_n), as ``nn.RNN``; ``lengths`` and ``mask`` as in ``SparseLSTM``."""
        if state is not None and not isinstance(state, Tensor):
            raise TypeError("the initial state of an RNN must be one tensor h_0")
        y, (h_n,) = self.run(x, (state,), lengths, mask)
        return y, h_n
