"""``SparseLSTMCell``, ``SparseGRUCell`` and ``SparseRNNCell``: torch's cells with K connections in their two matrices.

A cell is one step of the recurrent layer of its kind, and runs through the same ops.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from wirebound.nn.inputs import settle_input
from wirebound.nn.matrix import SparseMatrices, SparseMatrix
from wirebound.nn.recurrent_pass import Direction, Pass, run_layer
from wirebound.nn.rnn import simple_kind
from wirebound.nn.trace import cell_by_operators, one_node, recorded
from wirebound.ops.recurrence import GATES
from wirebound.wiring import Allocation, LayerShape, Wiring


def cell_shapes(kind: str, input_size: int, hidden_size: int) -> list[LayerShape]:
    """The matrices of a cell (``kind`` is a key of ``ops.recurrence.GATES``), by torch's names."""
    rows = GATES[kind] * hidden_size
    return [LayerShape("weight_ih", rows, input_size), LayerShape("weight_hh", rows, hidden_size)]


class SparseCell(SparseMatrices):
    """What the cells share: both matrices are parts of one wiring, exactly K connections in all.

    Args:
        input_size, hidden_size, bias: as in torch.
        connectivity: share of the possible connections that exist, in (0, 1]; or
        budget: their number.
        allocation: how the budget is shared out between the matrices at the start, as in ``sparsify``.
        seed: decides positions, signs and first weights.
        init: ``"dense-fan-in"`` (the paper: N(0,1)/√fan-in) or ``"sparse-fan-in"``. Biases start at 0.
        wiring, part: take the parts ``part`` and ``part + 1`` of an existing wiring.
        owner: whether this layer is the one that holds the wiring as a submodule.
    """

    kind: str  # a key of ops.recurrence.GATES
    dense_class: ClassVar[type[nn.RNNCellBase]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        connectivity: float | None = None,
        budget: int | None = None,
        allocation: Allocation = "erdos-renyi",
        seed: int = 0,
        init: str = "dense-fan-in",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        wiring: Wiring | None = None,
        part: int = 0,
        owner: bool = True,
    ) -> None:
        super().__init__()
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
            if size < 1:
                raise ValueError(f"{name} (={size}) must be at least 1")
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.hold(
            cell_shapes(self.kind, input_size, hidden_size),
            bias,
            connectivity=connectivity,
            budget=budget,
            allocation=allocation,
            seed=seed,
            init=init,
            device=device,
            dtype=dtype,
            wiring=wiring,
            part=part,
            owner=owner,
        )

    def run(self, x: Tensor, state: tuple[Tensor | None, ...]) -> list[Tensor]:
        """The states after one step; ``state`` has as many tensors as the kind has states, or None for zeros."""
        if recorded(x):
            return cell_by_operators(self, x, state)
        theta = self.wiring.theta
        x = settle_input(x, theta, self)
        if x.dim() not in (1, 2):
            raise ValueError(f"the input must have 2 dimensions, or 1 without a batch, not {x.dim()}")
        if x.shape[-1] != self.input_size:
            raise ValueError(f"the last dimension of the input (={x.shape[-1]}) must be input_size (={self.input_size})")
        rows = x if x.dim() == 2 else x.unsqueeze(0)
        expected = (*x.shape[:-1], self.hidden_size)
        starts = []
        for value in state:
            if value is None:
                value = x.new_zeros(expected)
            elif value.shape != expected:
                raise ValueError(f"the shape of a state (={tuple(value.shape)}) must be {expected}")
            starts.append(settle_input(value, theta, self, "a state").view(1, rows.shape[0], self.hidden_size))
        ih, hh = (cast(SparseMatrix, self._modules[name]) for name in self.matrix_names)
        direction = Direction(ih, hh, *(self.bias_of(name) for name in self.matrix_names))
        job = Pass(self.kind, self.hidden_size, [direction], None, batch_first=False)
        _, *ends = run_layer(job, rows.unsqueeze(0), starts[0], starts[1] if len(starts) > 1 else None)
        return [end.view(expected) for end in ends if end is not None]

    def dense_twin(self) -> nn.RNNCellBase:
        """The ordinary torch cell with these weights."""
        theta = self.wiring.theta
        options: dict[str, Any] = {"device": theta.device, "dtype": theta.dtype, **self._own_options()}
        twin = cast(Any, self.dense_class)(self.input_size, self.hidden_size, self.bias, **options)
        self.fill_dense(twin)
        return cast(nn.RNNCellBase, twin)

    def _own_options(self) -> dict[str, Any]:
        """Arguments that only this kind of cell has."""
        return {}

    def extra_repr(self) -> str:
        chosen = [] if self.bias else ["bias=False"]
        chosen += [f"{name}={value!r}" for name, value in self._own_options().items()]
        active = sum(matrix.active for matrix in self.matrices())
        return ", ".join([str(self.input_size), str(self.hidden_size), *chosen, f"active={active}"])


class SparseLSTMCell(SparseCell):
    """``nn.LSTMCell`` with exactly K connections in its two matrices (arguments: ``SparseCell``)."""

    kind = "lstm"
    dense_class = nn.LSTMCell

    @one_node
    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """(h, c) after one step, as ``nn.LSTMCell``."""
        if hx is not None and (not isinstance(hx, tuple | list) or len(hx) != 2):
            raise TypeError("the state of an LSTM cell must be a pair (h, c)")
        h, c = self.run(input, (None, None) if hx is None else tuple(hx))
        return h, c


class SparseGRUCell(SparseCell):
    """``nn.GRUCell`` with exactly K connections in its two matrices (arguments: ``SparseCell``)."""

    kind = "gru"
    dense_class = nn.GRUCell

    @one_node
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """h after one step, as ``nn.GRUCell``."""
        return self.run(input, (hx,))[0]


class SparseRNNCell(SparseCell):
    """``nn.RNNCell`` with exactly K connections in its two matrices.

    Args:
        input_size, hidden_size, bias, nonlinearity: as in torch.
        options: connectivity, budget and the other arguments of ``SparseCell``.
    """

    dense_class = nn.RNNCell

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        self.kind, self.nonlinearity = simple_kind(nonlinearity), nonlinearity
        super().__init__(input_size, hidden_size, bias, **options)

    def _own_options(self) -> dict[str, Any]:
        return {"nonlinearity": self.nonlinearity}

    @one_node
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """h after one step, as ``nn.RNNCell``."""
        return self.run(input, (hx,))[0]
