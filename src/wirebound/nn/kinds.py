"""Which torch modules have a sparse twin, which matrices each has, and how its twin is made.

A new layer is one entry here. ``masked`` is for parameters of everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from wirebound.nn.attention import PROJECTIONS, SparseMultiheadAttention, projection_weights
from wirebound.nn.linear import SparseLinear
from wirebound.nn.masked import mask_parameters
from wirebound.wiring import LayerShape, Wiring

Slot = tuple[Wiring, int]  # a wiring and the number of a part of it


@dataclass(frozen=True)
class Matrix:
    """One matrix of a module: its first dimension are the outputs, all others together the inputs."""

    name: str  # below the module's own; empty if the module is the matrix
    weight: Tensor

    def shape(self, module_name: str) -> LayerShape:
        n_out = self.weight.shape[0]
        n_in = self.weight[0].numel() if n_out else 0
        return LayerShape(".".join(n for n in (module_name, self.name) if n), n_out, n_in)


@dataclass(frozen=True)
class Kind:
    """A torch module and its sparse twin."""

    parameters: Callable[[Any], Sequence[str]]  # those that become part of a wiring
    matrices: Callable[[Any], list[Matrix]]
    twin: Callable[[Any, Sequence[Slot]], nn.Module]


def _keep_bias(twin: nn.Module, dense: nn.Module) -> nn.Module:
    """The very Parameters of the biases, so that optimisers that hold them keep them."""
    for name, bias in dense._parameters.items():
        if name.startswith("bias") and bias is not None and not bias.is_meta:
            twin._parameters[name] = bias
    return twin.train(dense.training)


def _linear(dense: nn.Linear, slots: Sequence[Slot]) -> nn.Module:
    ((wiring, part),) = slots
    bias = dense.bias is not None
    twin = SparseLinear(dense.in_features, dense.out_features, bias, wiring=wiring, part=part, owner=part == 0)
    return _keep_bias(twin, dense)


def _one_weight(dense: nn.Module) -> list[Matrix]:
    weight = dense.weight
    assert isinstance(weight, Tensor)
    return [Matrix("", weight)]


def _attention_parameters(dense: nn.MultiheadAttention) -> list[str]:
    own = [name for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")]
    return [*(name for name in own if getattr(dense, name) is not None), "out_proj.weight"]


def _attention_matrices(dense: nn.MultiheadAttention) -> list[Matrix]:
    return [Matrix(*pair) for pair in zip(PROJECTIONS, projection_weights(dense), strict=True)]


def masked(names: Sequence[str]) -> Kind:
    """Parameters of a module without a sparse layer: dense in every pass."""
    return Kind(
        parameters=lambda module: names,
        matrices=lambda module: [Matrix(name, module._parameters[name]) for name in names],
        twin=lambda module, slots: mask_parameters(module, names, slots),
    )


# Exact types: a subclass may use its weight in ways of its own, and is left alone.
KINDS: dict[type[nn.Module], Kind] = {
    nn.Linear: Kind(lambda dense: ["weight"], _one_weight, _linear),
    nn.MultiheadAttention: Kind(_attention_parameters, _attention_matrices, SparseMultiheadAttention),
}
