"""How the sparse twin of each torch module is made: the same arguments, the very Parameters of its biases, and parts of
wirings in place of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from wirebound.nn.cells import SparseCell, SparseGRUCell, SparseLSTMCell, SparseRNNCell, cell_shapes
from wirebound.nn.conv import SparseConv1d, SparseConv2d
from wirebound.nn.conv3d import SparseConv3d
from wirebound.nn.conv_transpose import SparseConvTranspose1d, SparseConvTranspose2d, SparseConvTranspose3d
from wirebound.nn.linear import SparseLinear
from wirebound.nn.recurrent import SparseGRU, SparseLSTM, SparseRecurrent, matrix_shapes
from wirebound.nn.rnn import SparseRNN, simple_kind
from wirebound.nn.transposed_linear import SparseTransposedLinear
from wirebound.wiring import LayerShape, Wiring

Slot = tuple[Wiring, int]  # a wiring and the number of a part of it


def _keep_bias(twin: nn.Module, dense: nn.Module) -> nn.Module:
    """The very Parameters of the biases, so that optimisers that hold them keep them."""
    for name, bias in dense._parameters.items():
        if not name.startswith("bias") or bias is None:
            continue
        if bias.is_meta:
            twin.get_parameter(name).requires_grad_(bias.requires_grad)
        else:
            twin._parameters[name] = bias
    return twin.train(dense.training)


def linear(dense: nn.Linear, slots: Sequence[Slot]) -> nn.Module:
    ((wiring, part),) = slots
    bias = dense.bias is not None
    twin = SparseLinear(dense.in_features, dense.out_features, bias, wiring=wiring, part=part, owner=part == 0)
    return _keep_bias(twin, dense)


def conv1d(dense: Any, slots: Sequence[Slot]) -> nn.Module:
    ((wiring, part),) = slots
    twin = SparseTransposedLinear(dense.nf, dense.weight.shape[0], wiring=wiring, part=part, owner=part == 0)
    return _keep_bias(twin, dense)


CONVS: dict[type[nn.Module], Any] = {nn.Conv1d: SparseConv1d, nn.Conv2d: SparseConv2d, nn.Conv3d: SparseConv3d}
TRANSPOSED: dict[type[nn.Module], Any] = {
    nn.ConvTranspose1d: SparseConvTranspose1d,
    nn.ConvTranspose2d: SparseConvTranspose2d,
    nn.ConvTranspose3d: SparseConvTranspose3d,
}


def _of(table: dict[type[nn.Module], Any], dense: nn.Module) -> Any:
    """The entry of a module or of what it is a subclass of."""
    return next(twin for base, twin in table.items() if isinstance(dense, base))


def conv(dense: Any, slots: Sequence[Slot]) -> nn.Module:
    ((wiring, part),) = slots
    twin = _of(CONVS, dense)(
        dense.in_channels,
        dense.out_channels,
        dense.kernel_size,
        dense.stride,
        dense.padding,
        dense.dilation,
        dense.groups,
        dense.bias is not None,
        dense.padding_mode,
        wiring=wiring,
        part=part,
        owner=part == 0,
    )
    return _keep_bias(twin, dense)


def transposed(dense: Any, slots: Sequence[Slot]) -> nn.Module:
    ((wiring, part),) = slots
    twin = _of(TRANSPOSED, dense)(
        dense.in_channels,
        dense.out_channels,
        dense.kernel_size,
        dense.stride,
        dense.padding,
        dense.output_padding,
        dense.groups,
        dense.bias is not None,
        dense.dilation,
        wiring=wiring,
        part=part,
        owner=part == 0,
    )
    return _keep_bias(twin, dense)


def recurrent(dense: nn.RNNBase, slots: Sequence[Slot]) -> nn.Module:
    options: dict[str, Any] = {}
    made: type[SparseRecurrent]
    if isinstance(dense, nn.RNN):
        made, kind, options = SparseRNN, simple_kind(dense.nonlinearity), {"nonlinearity": dense.nonlinearity}
    else:
        made = SparseLSTM if isinstance(dense, nn.LSTM) else SparseGRU
        kind = made.kind
    shapes = matrix_shapes(kind, dense.input_size, dense.hidden_size, dense.num_layers, dense.bidirectional)
    twin = made(
        dense.input_size,
        dense.hidden_size,
        dense.num_layers,
        bias=bool(dense.bias),
        batch_first=dense.batch_first,
        dropout=dense.dropout,
        bidirectional=dense.bidirectional,
        wiring=_nothing(shapes, slots),
        owner=False,
        **options,
    )
    return _take_parts(twin, dense, slots)


def cell(dense: nn.RNNCellBase, slots: Sequence[Slot]) -> nn.Module:
    options: dict[str, Any] = {}
    made: type[SparseCell]
    if isinstance(dense, nn.RNNCell):
        made, kind, options = SparseRNNCell, simple_kind(dense.nonlinearity), {"nonlinearity": dense.nonlinearity}
    else:
        made = SparseLSTMCell if isinstance(dense, nn.LSTMCell) else SparseGRUCell
        kind = made.kind
    shapes = cell_shapes(kind, dense.input_size, dense.hidden_size)
    wiring = _nothing(shapes, slots)
    bias = bool(dense.bias)
    twin = made(dense.input_size, dense.hidden_size, bias=bias, wiring=wiring, owner=False, **options)
    return _take_parts(twin, dense, slots)


def _nothing(shapes: Sequence[LayerShape], slots: Sequence[Slot]) -> Wiring:
    """A wiring that holds nothing: each matrix of a layer may have one of its own, and is given its part later."""
    theta = slots[0][0].theta
    return Wiring(shapes, [0] * len(shapes), device=theta.device, dtype=theta.dtype)


def _take_parts(twin: SparseRecurrent | SparseCell, dense: nn.Module, slots: Sequence[Slot]) -> nn.Module:
    for matrix, (wiring, part) in zip(twin.matrices(), slots, strict=True):
        matrix.attach(wiring, part, owner=part == 0)
    return _keep_bias(twin, dense)
