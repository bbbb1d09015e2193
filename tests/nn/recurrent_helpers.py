"""A sparse recurrent layer beside torch's with the same weights: outputs and all gradients of both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import wirebound as wb
from wirebound.ops.layout import rows_of, signs_of

CLASSES = {"lstm": wb.SparseLSTM, "gru": wb.SparseGRU, "rnn": wb.SparseRNN}
Layer = wb.SparseLSTM | wb.SparseGRU | wb.SparseRNN


def make(kind: str, *sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64, **options: Any) -> Layer:
    """A layer with biases that are not 0."""
    layer = CLASSES[kind](*sizes, seed=seed, dtype=dtype, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("bias"):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return layer


def states(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def run_dense(twin: nn.Module, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, ...]:
    if lengths is None:
        y, last = twin(x, state)
        return (y, *states(last))
    time = 1 if twin.batch_first else 0
    packed = pack_padded_sequence(x, lengths, batch_first=twin.batch_first, enforce_sorted=False)
    y, last = twin(packed, state)
    y, _ = pad_packed_sequence(y, batch_first=twin.batch_first, total_length=x.shape[time])
    return (y, *states(last))


def at_connections(layer: Layer, dense: nn.Module) -> Tensor:
    """The dense gradients where connections are, with respect to θ."""
    found = []
    for name, matrix in zip(layer.matrix_names, layer.matrices(), strict=True):
        index = layer.wiring.layer_index(matrix.layer_id)
        packed_rows, colptr = index.layer_packed_rows(), index.layer_colptr()
        columns = torch.repeat_interleave(torch.arange(colptr.numel() - 1), colptr.diff())
        gradient = dense.get_parameter(name).grad
        found.append(gradient[rows_of(packed_rows), columns] * signs_of(packed_rows, gradient.dtype))
    return torch.cat(found)


def compare(layer: Layer, x: Tensor, state: Any = None, lengths: Tensor | None = None, tolerance: float = 1e-11) -> None:
    """Outputs, last states and all gradients are those of torch."""
    twin = layer.dense_twin()
    twin.train(layer.training)
    layer.zero_grad()
    inputs = []
    outcomes = []
    for which in (layer, twin):
        own_x = x.clone().requires_grad_()
        own_state = None if state is None else tuple(s.clone().requires_grad_() for s in states(state))
        given = own_state[0] if own_state is not None and layer.kind != "lstm" else own_state
        if which is layer:
            y, last = layer(own_x, given, lengths=lengths)
            outcome = (y, *states(last))
        else:
            outcome = run_dense(twin, own_x, given, lengths)
        generator = torch.Generator().manual_seed(3)
        loss = sum((o * torch.randn(o.shape, dtype=o.dtype, generator=generator)).sum() for o in outcome)
        loss.backward()
        inputs.append((own_x, *(own_state or ())))
        outcomes.append(outcome)
    for ours, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(*inputs, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(layer.wiring.theta.grad, at_connections(layer, twin), rtol=tolerance, atol=tolerance)
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            theirs = twin.get_parameter(name).grad
            torch.testing.assert_close(parameter.grad, theirs, rtol=tolerance, atol=tolerance, msg=name)
