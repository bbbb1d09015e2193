"""Which torch modules have a sparse twin, which matrices each has, and how its twin is made.

A new layer is one entry here. ``masked`` is for parameters of everything else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from wirebound.nn.attention import PROJECTIONS, SparseMultiheadAttention, projection_weights
from wirebound.nn.conv_transpose import as_matrix
from wirebound.nn.masked import mask_parameters, matrix_of
from wirebound.nn.transposed_linear import is_conv1d
from wirebound.nn.twins import CONVS, TRANSPOSED, Slot, cell, conv, conv1d, linear, recurrent, transposed
from wirebound.wiring import LayerShape


def _flat(weight: Tensor) -> Tensor:
    return weight.flatten(1)


@dataclass(frozen=True)
class Matrix:
    """One matrix of a module, with outputs as rows and inputs as columns."""

    name: str  # below the module's own; empty if the module is the matrix
    weight: Tensor  # as the module has it
    n_out: int
    n_in: int
    arrange: Callable[[Tensor], Tensor] = _flat  # from the weight to [n_out, n_in]

    def shape(self, module_name: str) -> LayerShape:
        return LayerShape(".".join(n for n in (module_name, self.name) if n), self.n_out, self.n_in)


@dataclass(frozen=True)
class LayerKind:
    """A torch module and its sparse twin."""

    parameters: Callable[[Any], Sequence[str]]  # those that become part of a wiring
    matrices: Callable[[Any], list[Matrix]]
    twin: Callable[[Any, Sequence[Slot]], nn.Module]
    masked: bool = False  # dense in every pass


def _rows_first(name: str, weight: Tensor) -> Matrix:
    """A matrix whose first dimension are the outputs, all others together the inputs."""
    n_out = weight.shape[0]
    return Matrix(name, weight, n_out, weight.numel() // n_out if n_out else 0)


def _one_weight(dense: Any) -> list[Matrix]:
    return [_rows_first("", dense.weight)]


def _only_weight(dense: Any) -> list[str]:
    return ["weight"]


def _conv1d_matrices(dense: Any) -> list[Matrix]:
    return [Matrix("", dense.weight, dense.nf, dense.weight.shape[0], lambda weight: weight.t())]


def _transposed_matrices(dense: Any) -> list[Matrix]:
    n_out, groups = dense.out_channels, dense.groups
    n_in = dense.weight.numel() // n_out if n_out else 0
    return [Matrix("", dense.weight, n_out, n_in, lambda weight: as_matrix(weight, groups))]


def _named_weights(dense: nn.Module) -> list[str]:
    return [name for name in dense._parameters if name.startswith("weight")]


def _named_matrices(dense: nn.Module) -> list[Matrix]:
    return [_rows_first(name, dense.get_parameter(name)) for name in _named_weights(dense)]


def _attention_parameters(dense: nn.MultiheadAttention) -> list[str]:
    own = [name for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")]
    return [*(name for name in own if getattr(dense, name) is not None), "out_proj.weight"]


def _attention_matrices(dense: nn.MultiheadAttention) -> list[Matrix]:
    return [_rows_first(*pair) for pair in zip(PROJECTIONS, projection_weights(dense), strict=True)]


def _as_rows(weight: Tensor, n_in: int) -> Tensor:
    return weight.reshape(-1, n_in)


def masked(names: Sequence[str]) -> LayerKind:
    """Parameters of a module without a sparse layer: dense in every pass."""

    def matrices(module: nn.Module) -> list[Matrix]:
        found = []
        for name in names:
            weight = module.get_parameter(name)
            n_out, n_in = matrix_of(module, weight.shape)
            found.append(Matrix(name, weight, n_out, n_in, functools.partial(_as_rows, n_in=n_in)))
        return found

    return LayerKind(
        parameters=lambda module: names,
        matrices=matrices,
        twin=lambda module, slots: mask_parameters(module, names, slots),
        masked=True,
    )


_CONV1D = LayerKind(_only_weight, _conv1d_matrices, conv1d)
KINDS: dict[type[nn.Module], LayerKind] = {
    nn.Linear: LayerKind(_only_weight, _one_weight, linear),
    **{dense: LayerKind(_only_weight, _one_weight, conv) for dense in CONVS},
    **{dense: LayerKind(_only_weight, _transposed_matrices, transposed) for dense in TRANSPOSED},
    **{dense: LayerKind(_named_weights, _named_matrices, recurrent) for dense in (nn.RNN, nn.LSTM, nn.GRU)},
    **{dense: LayerKind(_named_weights, _named_matrices, cell) for dense in (nn.RNNCell, nn.LSTMCell, nn.GRUCell)},
    nn.MultiheadAttention: LayerKind(_attention_parameters, _attention_matrices, SparseMultiheadAttention),
}


def kind_of(module: nn.Module) -> tuple[type[nn.Module], LayerKind] | None:
    """The torch module that this one is, or is a subclass of, and what becomes of it; None if there is no sparse twin."""
    for base in type(module).__mro__:
        if base in KINDS:
            return base, KINDS[base]
        if is_conv1d(base):
            return base, _CONV1D
    return None
