"""Parameters of modules that have no sparse layer of their own, under a wiring: masked dense storage.

Parameters and optimiser state are K long; the weight that the module reads, and its gradient, are dense in every pass."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from wirebound.nn.options import Slot
from wirebound.nn.sparse_layer import Matrix, SparseLayer
from wirebound.wiring import Wiring


def matrix_of(module: nn.Module, shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a parameter: the last dimension are the columns; in a convolution all but the first are."""
    n_in = math.prod(shape[1:] if isinstance(module, _ConvNd) else shape[-1:])
    return (math.prod(shape) // n_in if n_in else 0), n_in


class MaskedParameter(SparseLayer):
    """One parameter of a module, as part of a wiring (``matrix_of``)."""

    def __init__(self, shape: Sequence[int], wiring: Wiring, layer_id: int) -> None:
        super().__init__()
        self.shape = torch.Size(shape)
        self.attach(wiring, layer_id, owner=layer_id == 0)

    @property
    def dense_bytes(self) -> int:
        """Of the dense weight that each pass makes; its gradient takes as many."""
        return self.shape.numel() * self.wiring.theta.element_size()

    def forward(self) -> Tensor:
        """The weight for the module to compute with, dense when it does; gradients flow to θ at the active positions."""
        return self.weight

    def arranged(self, matrix: Tensor) -> Tensor:
        return matrix.view(self.shape)

    def extra_repr(self) -> str:
        return f"shape={tuple(self.shape)}, active={self.active}, dense in every pass"


class Masked:
    """Mark of the classes that ``MaskedParameters`` makes."""

    masked_names: tuple[str, ...]


_classes: dict[tuple[type[nn.Module], tuple[str, ...]], type[nn.Module]] = {}


def _masked_class(base: type[nn.Module], names: tuple[str, ...]) -> type[nn.Module]:
    """A subclass in which these parameters are made from their wiring whenever someone reads them."""
    if (base, names) in _classes:
        return _classes[base, names]

    def reader(name: str) -> property:
        return property(lambda module: module._modules[f"masked_{name}"]())

    def __reduce_ex__(module: nn.Module, protocol: Any) -> Any:
        # The class has no name to be imported by: copies and files name what it is made of.
        return _rebuild, (base, names), module.__getstate__()

    def _save_to_state_dict(module: nn.Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        # Some classes write their weight by name (torch_geometric's Linear), but it is in the wiring now.
        base._save_to_state_dict(module, destination, prefix, keep_vars)
        for name in names:
            destination.pop(prefix + name, None)

    attributes: dict[str, Any] = {name: reader(name) for name in names}
    attributes |= {"masked_names": names, "__module__": base.__module__}
    attributes |= {"__reduce_ex__": __reduce_ex__, "_save_to_state_dict": _save_to_state_dict}
    made = _classes[base, names] = type(base.__name__, (Masked, base), attributes)
    return made


def _rebuild(base: type[nn.Module], names: tuple[str, ...]) -> nn.Module:
    cls = _masked_class(base, names)
    return cls.__new__(cls)


@dataclass(frozen=True)
class MaskedParameters:
    """Parameters of a module without a sparse layer, as ``sparsify`` takes them (``LayerKind``)."""

    names: Sequence[str]
    masked: bool = True

    def weight_names(self, module: nn.Module) -> Sequence[str]:
        return self.names

    def matrices_of(self, module: nn.Module) -> list[Matrix]:
        found = []
        for name in self.names:
            weight = module.get_parameter(name)
            n_out, n_in = matrix_of(module, weight.shape)
            found.append(Matrix(name, weight, n_out, n_in, functools.partial(torch.reshape, shape=(-1, n_in))))
        return found

    def from_dense(self, module: nn.Module, slots: Sequence[Slot]) -> nn.Module:
        for name, (wiring, layer_id) in zip(self.names, slots, strict=True):
            shape = module._parameters[name].shape  # type: ignore[union-attr]
            del module._parameters[name]
            module.add_module(f"masked_{name}", MaskedParameter(shape, wiring, layer_id))
        before = module.masked_names if isinstance(module, Masked) else ()
        base = type(module).__mro__[2] if isinstance(module, Masked) else type(module)
        module.__class__ = _masked_class(base, (*before, *self.names))
        return module


def unmask_parameters(model: nn.Module) -> nn.Module:
    for module in list(model.modules()):
        if not isinstance(module, Masked):
            continue
        names, module.__class__ = module.masked_names, type(module).__mro__[2]
        for name in names:
            child = cast(MaskedParameter, module._modules.pop(f"masked_{name}"))
            module.register_parameter(name, nn.Parameter(child.dense_weight()))
    return model
