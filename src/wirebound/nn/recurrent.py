"""``SparseLSTM`` and ``SparseGRU``: ``nn.LSTM`` and ``nn.GRU`` with K connections instead of their matrices."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from wirebound.nn.inputs import settle_input
from wirebound.nn.matrix import SparseMatrices
from wirebound.nn.recurrent_pass import Direction, Pass, run_layer
from wirebound.nn.sequence_lengths import packed_like, settle_lengths
from wirebound.nn.trace import one_node, recorded, recurrent_by_operators
from wirebound.ops.recurrence import GATES
from wirebound.wiring import Allocation, LayerShape, Wiring


def matrix_shapes(
    kind: str, input_size: int, hidden_size: int, num_layers: int = 1, bidirectional: bool = False, prefix: str = ""
) -> list[LayerShape]:
    """The matrices of a recurrent layer (``kind`` is a key of ``ops.recurrence.GATES``), by torch's names and in torch's order."""
    rows, directions = GATES[kind] * hidden_size, 2 if bidirectional else 1
    shapes = []
    for layer in range(num_layers):
        n_in = input_size if layer == 0 else directions * hidden_size
        for end in ("", "_reverse")[:directions]:
            shapes.append(LayerShape(f"{prefix}weight_ih_l{layer}{end}", rows, n_in))
            shapes.append(LayerShape(f"{prefix}weight_hh_l{layer}{end}", rows, hidden_size))
    return shapes


class SparseRecurrent(SparseMatrices):
    """What ``SparseLSTM``, ``SparseGRU`` and ``SparseRNN`` share: all matrices are parts of one wiring, exactly K connections in all.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as in torch; ``proj_size`` is
            not supported.
        connectivity: share of the possible connections that exist, in (0, 1]; or
        budget: their number.
        allocation: how the budget is shared out among the matrices at the start, as in ``sparsify``.
        seed: decides positions, signs and first weights.
        init: ``"dense-fan-in"`` (the paper: N(0,1)/√fan-in) or ``"sparse-fan-in"``. Biases start at 0.
        wiring, part: take the parts from ``part`` on of an existing wiring, in the order of ``matrix_shapes``.
        owner: whether this layer is the one that holds the wiring as a submodule.
    """

    kind: str  # a key of ops.recurrence.GATES
    dense_class: ClassVar[type[nn.RNNBase]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
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
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if size < 1:
                raise ValueError(f"{name} (={size}) must be at least 1")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout (={dropout}) must be in [0, 1]")
        if proj_size:
            raise ValueError(f"proj_size (={proj_size}) must be 0: {type(self).__name__} has no projections")
        if dropout and num_layers == 1:
            warnings.warn(f"dropout (={dropout}) is between layers, and num_layers is 1", stacklevel=2)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        self.proj_size = 0
        self.hold(
            matrix_shapes(self.kind, input_size, hidden_size, num_layers, bidirectional),
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

    def _directions(self, layer: int) -> list[Direction]:
        each = 2 if self.bidirectional else 1
        names = self.matrix_names[2 * each * layer : 2 * each * (layer + 1)]
        found = []
        for ih, hh in zip(names[::2], names[1::2], strict=True):
            biases = [self.bias_of(name) for name in (ih, hh)]
            matrices = [self._modules[name] for name in (ih, hh)]
            found.append(Direction(*matrices, *biases))  # type: ignore[arg-type]
        return found

    def run(
        self, x: Any, state: tuple[Tensor | None, ...], lengths: Tensor | None, mask: Tensor | None
    ) -> tuple[Any, list[Tensor]]:
        """Output and last states; ``state`` has as many tensors as the kind has states, or None for zeros. What is
        packed goes in padded, and out packed again."""
        if isinstance(x, PackedSequence):
            if lengths is not None or mask is not None:
                raise ValueError("a PackedSequence has lengths of its own: give neither lengths nor mask beside it")
            padded, lengths = pad_packed_sequence(x, self.batch_first)
            y, finals = self.run(padded, state, lengths, None)
            return packed_like(y, x, lengths, self.batch_first), finals
        if recorded(x):
            return recurrent_by_operators(self, x, state, lengths, mask)
        theta = self.wiring.theta
        x = settle_input(x, theta, self)
        if x.dim() not in (2, 3):
            raise ValueError(f"the input must have 3 dimensions, or 2 without a batch, not {x.dim()}")
        if x.shape[-1] != self.input_size:
            raise ValueError(f"the last dimension of the input (={x.shape[-1]}) must be input_size (={self.input_size})")
        batched = x.dim() == 3
        if not batched:
            x = x.unsqueeze(1)
            state = tuple(None if s is None else s.unsqueeze(1) for s in state)
        elif self.batch_first:
            x = x.transpose(0, 1)
        batch_first = batched and self.batch_first
        lengths = settle_lengths(x, lengths, mask)
        if lengths is not None:  # what stands in the padding, be it NaN, must not matter
            padding = torch.arange(x.shape[0], device=lengths.device)[:, None] >= lengths
            x = x.masked_fill(padding.to(x.device).unsqueeze(2), 0.0)
        starts = [self._start(s, x) for s in state]
        ends: list[list[Tensor]] = [[] for _ in starts]
        each = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            job = Pass(self.kind, self.hidden_size, self._directions(layer), lengths, batch_first)
            own = [s[each * layer : each * (layer + 1)] for s in starts]
            x, *last = run_layer(job, x, own[0], own[1] if len(own) > 1 else None)
            for end, value in zip(ends, last, strict=False):
                assert value is not None
                end.append(value)
            if self.dropout and self.training and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout)
        finals = [torch.cat(end) if len(end) > 1 else end[0] for end in ends]
        if not batched:
            return x.squeeze(1), [final.squeeze(1) for final in finals]
        return x.transpose(0, 1) if batch_first else x, finals

    def _start(self, state: Tensor | None, x: Tensor) -> Tensor:
        expected = ((2 if self.bidirectional else 1) * self.num_layers, x.shape[1], self.hidden_size)
        if state is None:
            return x.new_zeros(expected)
        if state.shape != expected:
            raise ValueError(
                f"the shape of an initial state (={tuple(state.shape)}) must be "
                f"(layers × directions, batch, hidden_size) = {expected}, without the batch if the input has none"
            )
        return settle_input(state, x, self, "an initial state")

    def flatten_parameters(self) -> None:
        """Nothing to do: for programs that call it on torch's layers."""

    def dense_twin(self) -> nn.RNNBase:
        """The ordinary torch layer with these weights."""
        theta = self.wiring.theta
        twin = cast(Any, self.dense_class)(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            bias=self.bias,
            batch_first=self.batch_first,
            dropout=self.dropout,
            bidirectional=self.bidirectional,
            device=theta.device,
            dtype=theta.dtype,
            **self._own_options(),
        )
        self.fill_dense(twin)
        return cast(nn.RNNBase, twin)

    def _own_options(self) -> dict[str, Any]:
        """Arguments that only this kind of layer has."""
        return {}

    def extra_repr(self) -> str:
        options = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        chosen = [f"{name}={getattr(self, name)}" for name, usual in options.items() if getattr(self, name) != usual]
        chosen += [f"{name}={value!r}" for name, value in self._own_options().items()]
        active = sum(matrix.active for matrix in self.matrices())
        return ", ".join([str(self.input_size), str(self.hidden_size), *chosen, f"active={active}"])


class SparseLSTM(SparseRecurrent):
    """``nn.LSTM`` with exactly K connections in all its matrices (arguments: ``SparseRecurrent``)."""

    kind = "lstm"
    dense_class = nn.LSTM

    @one_node
    def forward(
        self,
        x: Tensor,
        state: tuple[Tensor, Tensor] | None = None,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(output, (h_n, c_n)), as ``nn.LSTM``.

        ``lengths`` [batch], or a boolean ``mask`` [batch, time] that is true up to each sequence's end: beyond it
        outputs are 0, last states are those of the last valid step, and the reverse direction starts there, as with
        torch's packed sequences.
        """
        if state is not None and (not isinstance(state, tuple | list) or len(state) != 2):
            raise TypeError("the initial state of an LSTM must be a pair (h_0, c_0)")
        y, (h_n, c_n) = self.run(x, (None, None) if state is None else tuple(state), lengths, mask)
        return y, (h_n, c_n)


class SparseGRU(SparseRecurrent):
    """``nn.GRU`` with exactly K connections in all its matrices (arguments: ``SparseRecurrent``)."""

    kind = "gru"
    dense_class = nn.GRU

    @one_node
    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(output, h_n), as ``nn.GRU``; ``lengths`` and ``mask`` as in ``SparseLSTM``."""
        if state is not None and not isinstance(state, Tensor):
            raise TypeError("the initial state of a GRU must be one tensor h_0")
        y, (h_n,) = self.run(x, (state,), lengths, mask)
        return y, h_n
