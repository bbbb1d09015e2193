"""Torch's recurrent layers and cells (LSTM, GRU, RNN) with K connections instead of their matrices."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from wirebound.nn.inputs import autocast_dtype, settle_input
from wirebound.nn.options import WiringOptions
from wirebound.nn.recurrent_pass import (
    Direction,
    Pass,
    SparseMatrices,
    SparseMatrix,
    packed_like,
    run_layer,
    settle_lengths,
)
from wirebound.nn.trace import in_graph, one_node, recorded, recurrent_by_operators
from wirebound.nn.traced import is_watched, run_outside, settle, traced_direction, traced_lengths
from wirebound.ops import GATES
from wirebound.wiring import LayerShape

if TYPE_CHECKING:
    from typing_extensions import Unpack

NONLINEARITIES = ("tanh", "relu")


def matrix_shapes(
    kind: str, input_size: int, hidden_size: int, num_layers: int = 1, bidirectional: bool = False, prefix: str = ""
) -> list[LayerShape]:
    """The matrices of a recurrent layer (``kind`` is a key of ``ops.GATES``), by torch's names and in torch's order."""
    rows, directions = GATES[kind] * hidden_size, 2 if bidirectional else 1
    shapes = []
    for layer in range(num_layers):
        n_in = input_size if layer == 0 else directions * hidden_size
        for end in ("", "_reverse")[:directions]:
            shapes.append(LayerShape(f"{prefix}weight_ih_l{layer}{end}", rows, n_in))
            shapes.append(LayerShape(f"{prefix}weight_hh_l{layer}{end}", rows, hidden_size))
    return shapes


class RecurrentMatrices(SparseMatrices):
    """What recurrent layers and cells share: a cell is a layer for one step."""

    kind: str  # a key of ops.GATES, and the name of torch's function
    input_size: int
    hidden_size: int
    bias: bool
    num_layers = 1
    batch_first = False
    dropout = 0.0
    bidirectional = False
    nonlinearity: str

    def _set_kind(self, nonlinearity: str) -> None:
        if nonlinearity not in NONLINEARITIES:
            raise ValueError(f"nonlinearity (={nonlinearity!r}) must be one of {NONLINEARITIES}")
        self.nonlinearity, self.kind = nonlinearity, f"rnn_{nonlinearity}"

    def _set(self, **arguments: Any) -> None:
        for name in ("input_size", "hidden_size", "num_layers"):
            if arguments.get(name, 1) < 1:
                raise ValueError(f"{name} (={arguments[name]}) must be at least 1")
        self.__dict__.update(arguments)

    def _states(self, state: Any, what: str) -> tuple[Tensor | None, ...]:
        """The states that are given, None for zeros: h, and c of an LSTM."""
        if self.kind == "lstm":
            if state is not None and (not isinstance(state, tuple | list) or len(state) != 2):
                raise TypeError(f"the {what} of an LSTM must be a pair (h, c)")
            return (None, None) if state is None else tuple(state)
        if state is not None and not isinstance(state, Tensor):
            raise TypeError(f"the {what} of {type(self).__name__} must be one tensor h")
        return (state,)

    def _require_input(self, x: Tensor, most: int, graph: bool = False) -> Tensor:
        theta = cast(Tensor, self._first().fast_wiring._parameters["theta"])
        x = settle(x, theta, "the input") if graph else settle_input(x, theta, self)
        if x.dim() not in (most - 1, most):
            raise ValueError(f"the input must have {most} dimensions, or {most - 1} without a batch, not {x.dim()}")
        if x.shape[-1] != self.input_size:
            raise ValueError(f"the last dimension of the input (={x.shape[-1]}) must be input_size (={self.input_size})")
        return x

    def _run(
        self, x: Any, state: tuple[Tensor | None, ...], lengths: Tensor | None, mask: Tensor | None
    ) -> tuple[Any, list[Tensor]]:
        """Output and last states; what is packed goes in padded, and out packed again."""
        if torch.compiler.is_compiling() and (isinstance(x, PackedSequence) or self._is_watched()):
            return cast(tuple[Any, list[Tensor]], run_outside(self._run, x, state, lengths, mask))
        if isinstance(x, PackedSequence):
            if lengths is not None or mask is not None:
                raise ValueError("a PackedSequence has lengths of its own: give neither lengths nor mask beside it")
            padded, lengths = pad_packed_sequence(x, self.batch_first)
            y, finals = self._run(padded, state, lengths, None)
            return packed_like(y, x, lengths, self.batch_first), finals
        recording = recorded(x, self._first().fast_wiring)
        graph = recording and in_graph(x)
        if recording and not graph:
            if lengths is not None or mask is not None:
                rule = "with lengths= or mask= cannot be traced or exported: use wb.to_dense(model)"
                raise RuntimeError(f"{type(self).__name__} {rule}")
            return recurrent_by_operators(self, x, state)
        x = self._require_input(x, 3, graph)
        batched = x.dim() == 3
        if not batched:
            x = x.unsqueeze(1)
            state = tuple(None if s is None else s.unsqueeze(1) for s in state)
        elif self.batch_first:
            x = x.transpose(0, 1)
        batch_first = batched and self.batch_first
        lengths = (traced_lengths if graph else settle_lengths)(x, lengths, mask)
        if lengths is not None:  # what stands in the padding, be it NaN, must not matter
            padding = torch.arange(x.shape[0], device=lengths.device)[:, None] >= lengths
            x = x.masked_fill(padding.to(x.device).unsqueeze(2), 0.0)
        starts = [self._start(s, x) for s in state]
        ends: list[list[Tensor]] = [[] for _ in starts]
        each = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            names = self.matrix_names[2 * each * layer : 2 * each * (layer + 1)]
            pairs = list(zip(names[::2], names[1::2], strict=True))
            own = [s[each * layer : each * (layer + 1)] for s in starts]
            last: list[Any]
            if graph:
                x, *last = self._traced_layer(pairs, x, own, lengths)
            else:
                held: Any = self._modules
                directions = [Direction(*map(held.get, pair), *map(self.bias_of, pair)) for pair in pairs]
                job = Pass(self.kind, self.hidden_size, directions, lengths, batch_first)
                x, *last = run_layer(job, x, own[0], own[1] if len(own) > 1 else None)
            for end, value in zip(ends, last, strict=False):
                end.append(value)
            if self.dropout and self.training and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout)
        finals = [torch.cat(end) if len(end) > 1 else end[0] for end in ends]
        if (dtype := autocast_dtype(x.device, x)) is not None:
            x, finals = x.to(dtype), [final.to(dtype) for final in finals]
        if not batched:
            return x.squeeze(1), [final.squeeze(1) for final in finals]
        return x.transpose(0, 1) if batch_first else x, finals

    def _first(self) -> SparseMatrix:
        return cast(SparseMatrix, self._modules[self.matrix_names[0]])

    def _is_watched(self) -> bool:
        held: Any = self._modules
        return any(is_watched(held[name].fast_wiring) for name in self.matrix_names)

    def _traced_layer(
        self, pairs: Sequence[tuple[str, str]], x: Tensor, starts: Sequence[Tensor], lengths: Tensor | None
    ) -> list[Tensor]:
        """y and the last states of a layer, by registered operators."""
        found = []
        for d, pair in enumerate(pairs):
            matrices = [self._modules[name] for name in pair]
            biases = [self._parameters.get(name.replace("weight", "bias")) for name in pair]
            c_0 = starts[1][d] if len(starts) > 1 else None
            found.append(traced_direction(self.kind, self.hidden_size, matrices, biases, x, starts[0][d], c_0, lengths, d == 1))
        y = torch.cat([one[0] for one in found], 2) if len(found) > 1 else found[0][0]
        return [y, *(torch.stack([one[1 + i] for one in found]) for i in range(len(starts)))]

    def _start(self, state: Tensor | None, x: Tensor) -> Tensor:
        expected = ((2 if self.bidirectional else 1) * self.num_layers, x.shape[1], self.hidden_size)
        if state is None:
            return x.new_zeros(expected)
        if state.shape != expected:
            rule = f"must be (layers × directions, batch, hidden_size) = {expected}, without the batch if the input has none"
            raise ValueError(f"the shape of an initial state (={tuple(state.shape)}) {rule}")
        return settle(state, x, "an initial state") if recorded(x, self._first().fast_wiring) else settle_input(state, x, self, "an initial state")

    def extra_repr(self) -> str:
        usual = {"bias": True, "num_layers": 1, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        chosen = {name: getattr(self, name) for name in self.arguments[2:]}
        parts = [f"{name}={value!r}" for name, value in chosen.items() if name not in usual or value != usual[name]]
        active = sum(matrix.active for matrix in self.matrices())
        return ", ".join([str(self.input_size), str(self.hidden_size), *parts, f"active={active}"])


class SparseRecurrent(RecurrentMatrices):
    """A recurrent layer of torch with exactly K connections in all its matrices.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as in torch.
        proj_size: must be 0.
        options: connectivity, budget and the other fields of ``WiringOptions``.
    """

    arguments: ClassVar[tuple[str, ...]] = (
        "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
    )
    proj_size = 0

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, **options: "Unpack[WiringOptions]",
    ) -> None:
        super().__init__()
        self._set(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers, bias=bias)
        self._set(batch_first=batch_first, dropout=dropout, bidirectional=bidirectional)
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout (={dropout}) must be in [0, 1]")
        if proj_size:
            raise ValueError(f"proj_size (={proj_size}) must be 0: {type(self).__name__} has no projections")
        if dropout and num_layers == 1:
            warnings.warn(f"dropout (={dropout}) is between layers, and num_layers is 1", stacklevel=2)
        self.hold(matrix_shapes(self.kind, input_size, hidden_size, num_layers, bidirectional), bias, options)

    @one_node
    def forward(
        self, x: Any, state: Any = None, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Any, Any]:
        """(output, h_n), or (output, (h_n, c_n)) of an LSTM, as in torch.

        ``lengths`` [batch], or a boolean ``mask`` [batch, time] that is true up to each sequence's end, has the effect
        of torch's packed sequences: beyond the end outputs are 0, and the reverse direction starts there.
        """
        y, finals = self._run(x, self._states(state, "initial state"), lengths, mask)
        return y, tuple(finals) if self.kind == "lstm" else finals[0]

    def flatten_parameters(self) -> None:
        """Nothing to do: for programs that call it on torch's layers."""


class SparseLSTM(SparseRecurrent):
    """``nn.LSTM`` with exactly K connections in all its matrices (arguments: ``SparseRecurrent``)."""
    kind, dense_class = "lstm", nn.LSTM


class SparseGRU(SparseRecurrent):
    """``nn.GRU`` with exactly K connections in all its matrices (arguments: ``SparseRecurrent``)."""
    kind, dense_class = "gru", nn.GRU


class SparseRNN(SparseRecurrent):
    """``nn.RNN`` with exactly K connections in all its matrices (arguments: ``SparseRecurrent``, and ``nonlinearity``)."""
    dense_class = nn.RNN
    arguments = (*SparseRecurrent.arguments, "nonlinearity")

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, **options: "Unpack[WiringOptions]",
    ) -> None:
        self._set_kind(nonlinearity)
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **options)


class SparseCell(RecurrentMatrices):
    """A cell of torch with exactly K connections in its two matrices: one step of the recurrent layer of its kind.

    Args:
        input_size, hidden_size, bias: as in torch.
        options: connectivity, budget and the other fields of ``WiringOptions``.
    """

    arguments: ClassVar[tuple[str, ...]] = ("input_size", "hidden_size", "bias")

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, **options: "Unpack[WiringOptions]") -> None:
        super().__init__()
        self._set(input_size=input_size, hidden_size=hidden_size, bias=bias)
        rows = GATES[self.kind] * hidden_size
        self.hold([LayerShape("weight_ih", rows, input_size), LayerShape("weight_hh", rows, hidden_size)], bias, options)

    @one_node
    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """h after one step, or (h, c) of an LSTM, as in torch."""
        state = self._states(hx, "state")
        if not recorded(input, self._first().fast_wiring):
            self._require_input(input, 2)
            expected = (*input.shape[:-1], self.hidden_size)
            for given in state:
                if given is not None and given.shape != expected:
                    raise ValueError(f"the shape of a state (={tuple(given.shape)}) must be {expected}")
        starts = tuple(None if given is None else given.unsqueeze(0) for given in state)
        ends = tuple(end.squeeze(0) for end in self._run(input.unsqueeze(0), starts, None, None)[1])
        return ends if self.kind == "lstm" else ends[0]


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
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        **options: "Unpack[WiringOptions]",
    ) -> None:
        self._set_kind(nonlinearity)
        super().__init__(input_size, hidden_size, bias, **options)
