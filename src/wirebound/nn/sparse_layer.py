"""What all sparse layers share: their matrices are layers of a wiring, one of which owns it, and each has a torch twin."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, TypeVar

import torch
from torch import Tensor, nn

from wirebound.nn.options import Slot, WiringOptions, settle_options
from wirebound.nn.trace import plain_matrix, recorded
from wirebound.nn.weight import lazy_weight, refuse
from wirebound.wiring import LayerShape, Wiring

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Matrix:
    """One matrix of a torch module, with outputs as rows and inputs as columns."""

    name: str  # below the module's own; empty if the module is the matrix
    weight: Tensor  # as the module has it
    n_out: int
    n_in: int
    arrange: Callable[[Tensor], Tensor]  # from the weight to [n_out, n_in]

    @classmethod
    def rows_first(cls, name: str, weight: Tensor) -> "Matrix":
        """Of a weight whose first dimension are the outputs, all others together the inputs."""
        n_out = weight.shape[0]
        return cls(name, weight, n_out, weight.numel() // n_out if n_out else 0, lambda weight: weight.flatten(1))

    def shape(self, module_name: str) -> LayerShape:
        return LayerShape(".".join(n for n in (module_name, self.name) if n), self.n_out, self.n_in)


class SparseModule(nn.Module):
    """A sparse layer that has the arguments of a torch layer under the same names, so that each is made from the other."""

    masked: ClassVar[bool] = False
    dense_class: ClassVar[Any] = None
    arguments: ClassVar[tuple[str, ...]] = ()  # of torch's constructor; both modules have them as attributes
    wiring: Any

    @classmethod
    def weight_names(cls, dense: nn.Module) -> Sequence[str]:
        """The parameters of the torch layer that become layers of a wiring."""
        return ["weight"]

    @classmethod
    def matrices_of(cls, dense: Any) -> list[Matrix]:
        return [Matrix.rows_first("", dense.weight)]

    @classmethod
    def from_dense(cls, dense: nn.Module, slots: Sequence[Slot]) -> nn.Module:
        """The sparse layer in place of a torch layer, with the very Parameters of its biases: optimisers may hold them."""
        twin = cls(**cls.arguments_of(dense), wiring=slots)
        for name, bias in dense._parameters.items():
            if bias is not None and name.startswith("bias"):
                if bias.is_meta:
                    twin.get_parameter(name).requires_grad_(bias.requires_grad)
                else:
                    twin._parameters[name] = bias
        return twin.train(dense.training)

    def dense_twin(self) -> Any:
        if self.dense_class is None:
            raise TypeError(f"{type(self).__name__} has no dense twin")
        theta = self.wiring.theta
        twin = self.dense_class(**self.arguments_of(self), device=theta.device, dtype=theta.dtype)
        with torch.no_grad():
            self.fill_dense(twin)
        return twin.train(self.training)

    @classmethod
    def arguments_of(cls, module: nn.Module) -> dict[str, Any]:
        found = {name: getattr(module, name) for name in cls.arguments}
        return found | ({"bias": found["bias"] is not None and found["bias"] is not False} if "bias" in found else {})

    def fill_dense(self, twin: Any) -> None:
        raise NotImplementedError

    def requires_grad_(self: Module, requires_grad: bool = True) -> Module:
        """Freeze or train this layer alone, although its θ is one parameter with that of others."""
        return set_frozen(self, not requires_grad)


class SparseLayer(SparseModule):
    """A layer whose weights are layer ``layer_id`` of a wiring.

    The first layer of a wiring holds it as a submodule, so that a model sees each wiring once; the others refer to it.
    """

    wiring: Wiring
    fast_wiring: Wiring
    layer_id: int
    bias: nn.Parameter | None
    made_dense = 0  # how often its weight was made dense, by whoever computed with it

    def wire(self, shape: LayerShape, bias: bool, options: WiringOptions) -> None:
        ((wiring, layer_id, owner),) = settle_options(options, [shape])
        self.bias = nn.Parameter(wiring.theta.new_zeros(shape.n_out)) if bias else None
        self.attach(wiring, layer_id, owner=owner)

    def attach(self, wiring: Wiring, layer_id: int, *, owner: bool) -> None:
        self.layer_id = layer_id
        # A plain attribute: looking a submodule up takes longer than the forward pass of a small layer.
        object.__setattr__(self, "fast_wiring", wiring)
        if owner:
            self.wiring = wiring
        else:
            object.__setattr__(self, "wiring", wiring)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "wiring" and value is not self.fast_wiring:
            why = f"the wiring of {type(self).__name__} cannot be replaced or wrapped: other layers may share it"
            raise AttributeError(f"{why}. Put another layer in its place, made with wiring= and layer_id=, or load a state dict")
        super().__setattr__(name, value)

    @property
    def active(self) -> int:
        return self.wiring.layer_active[self.layer_id]

    def arranged(self, matrix: Tensor) -> Tensor:
        """The matrix [n_out, n_in] as the weight of the torch twin lies: a view of it."""
        return matrix

    @property
    def weight(self) -> Tensor:
        """The weight as the torch twin has it: made only when it is computed with (``nn/weight.py``)."""
        if recorded(self.fast_wiring._parameters.get("theta")):
            return self.plain_weight()
        return lazy_weight([self], self.arranged)

    @weight.setter
    def weight(self, value: Any) -> NoReturn:
        refuse("layer.weight = …")

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        if name == "weight" or name.startswith("weight_"):  # an assignment, or torch.nn.utils.prune's "weight_orig"
            refuse(f"layer.{name} = …")
        super().register_parameter(name, param)

    def plain_weight(self) -> Tensor:
        return self.arranged(plain_matrix(self.fast_wiring, self.layer_id))

    def dense_weight(self) -> Tensor:
        """The weights scattered into the dense matrix of the torch twin. Dense by nature."""
        return self.arranged(self.wiring.layer_dense(self.layer_id))

    def fill_dense(self, twin: Any) -> None:
        twin.weight.copy_(self.dense_weight())
        if self.bias is not None:
            twin.bias.copy_(self.bias)

    def repr_active(self) -> str:
        possible = self.wiring.layers[self.layer_id].possible
        return f"active={self.active} ({100 * self.active / possible if possible else float('nan'):.3g} %)"

    def __prepare_scriptable__(self) -> NoReturn:
        what = f"torch.jit.script cannot compile {type(self).__name__}"
        raise RuntimeError(f"{what}: script wb.to_dense(model), or use torch.jit.trace")

    @property
    def qconfig(self) -> Any:
        """The setting of torch.ao.quantization for this layer, which it does not follow."""
        return self.__dict__.get("qconfig")

    @qconfig.setter
    def qconfig(self, value: Any) -> None:
        self.__dict__["qconfig"] = value
        advice = "quantise wb.to_dense(model) instead, or write int8 weights with wirebound.export.to_c"
        warnings.warn(f"torch.ao.quantization leaves sparse layers as they are: {advice}", stacklevel=2)

    @qconfig.deleter
    def qconfig(self) -> None:
        self.__dict__.pop("qconfig", None)


def sparse_layers(model: nn.Module) -> Iterator[tuple[str, SparseLayer]]:
    """The sparse layers of a model, by name, each once."""
    for name, module in model.named_modules():
        if isinstance(module, SparseLayer):
            yield name, module


def wirings(model: nn.Module) -> list[Wiring]:
    """The wirings of a model, each once, in the order in which the model holds them."""
    return list({id(layer.wiring): layer.wiring for _, layer in sparse_layers(model)}.values())


def set_frozen(module: Module, frozen: bool) -> Module:
    """Freeze or train all of a module and nothing else; where all layers of a wiring are frozen, θ has no requires_grad."""
    shared: dict[int, tuple[Wiring, set[int]]] = {}
    for _, layer in sparse_layers(module):
        shared.setdefault(id(layer.wiring.theta), (layer.wiring, set()))[1].add(layer.layer_id)
    for wiring, chosen in shared.values():
        before = wiring.layer_rates.frozen if wiring.theta.requires_grad else (True,) * len(wiring.layers)
        after = tuple(frozen if layer_id in chosen else was for layer_id, was in enumerate(before))
        whole = all(after)
        wiring.set_layer_rates(replace(wiring.layer_rates, frozen=(False,) * len(after) if whole else after))
        wiring.theta.requires_grad_(not whole)
    for parameter in module.parameters():
        if id(parameter) not in shared:
            parameter.requires_grad_(not frozen)
    return module


def freeze(module: nn.Module) -> None:
    """Stop training of a module: no connection of its sparse layers moves, dies or is born until ``unfreeze``.

    Its other parameters get ``requires_grad=False``. Other layers of a shared wiring still rewire among themselves. Like
    ``requires_grad``, this is not part of a state dict or checkpoint; copies of a model have it.
    """
    set_frozen(_module("freeze", module), True)
    for parameter in module.parameters():
        if not parameter.requires_grad:
            parameter.grad = None  # or the next step would still take it


def unfreeze(module: nn.Module) -> None:
    """Train a module again, sparse layers and all other parameters."""
    set_frozen(_module("unfreeze", module), False)


def set_rates(module: nn.Module, *, lr: float | None = None, weight_decay: float | None = None) -> None:
    """Give the connections of a module's sparse layers a learning rate and weight decay of their own.

    Both are factors on what the optimiser's group of θ says; ℓ1 and noise follow the layer's own learning rate.

    Args:
        module: a sparse layer, or any module that holds some.
        lr: factor on the learning rate, >= 0; 1 is as the optimiser says, None leaves it as it is.
        weight_decay: factor on the weight decay, likewise.
    """
    given = {"lr": lr, "weight_decay": weight_decay}
    factors = {name: float(factor) for name, factor in given.items() if factor is not None}
    for name, factor in factors.items():
        if not (math.isfinite(factor) and factor >= 0):
            raise ValueError(f"{name} (={given[name]}) must be a finite factor >= 0")
    layers = [layer for _, layer in sparse_layers(_module("set_rates", module))]
    if not layers:
        raise ValueError(f"module (={type(module).__name__}) has no sparse layer: use parameter groups of the optimiser")
    for layer in layers:
        layer.wiring.set_layer_rates(layer.wiring.layer_rates.changed(layer.layer_id, **factors))


def _module(name: str, module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise TypeError(f"{name} takes a module, not {type(module).__name__}")
    return module
