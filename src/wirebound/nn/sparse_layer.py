"""What all sparse layers share: their matrices are layers of a wiring, one of which owns it, and each has a torch twin."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, TypeVar

import torch
from torch import Tensor, nn

from wirebound.nn.options import Slot, WiringOptions
from wirebound.nn.trace import plain_matrix, recorded
from wirebound.nn.weight import lazy_weight, refuse
from wirebound.wiring import LayerShape, Wiring

Module = TypeVar("Module", bound=nn.Module)
_HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook"),
)


def zero_bias(wiring: Wiring, length: int) -> nn.Parameter:
    return nn.Parameter(wiring.theta.new_zeros(length))


@dataclass(frozen=True)
class Matrix:
    """One matrix of a torch module, with outputs as rows and inputs as columns."""

    name: str  # below the module's own; empty if the module is the matrix
    weight: Tensor  # as the module has it
    n_out: int
    n_in: int
    arrange: Callable[[Tensor], Tensor]  # from the weight to [n_out, n_in]

    @classmethod
    def rows_first(cls, name: str, weight: Tensor) -> Matrix:
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
        """The matrices of the torch layer."""
        return [Matrix.rows_first("", dense.weight)]

    @classmethod
    def from_dense(cls, dense: nn.Module, slots: Sequence[Slot]) -> nn.Module:
        """The sparse layer in place of a torch layer, with the very Parameters of its biases: optimisers may hold them."""
        twin = cls(**cls.arguments_of(dense), wiring=slots)
        for name, bias in dense._parameters.items():
            if not name.startswith("bias") or bias is None:
                continue
            if bias.is_meta:
                twin.get_parameter(name).requires_grad_(bias.requires_grad)
            else:
                twin._parameters[name] = bias
        return twin.train(dense.training)

    def dense_twin(self) -> Any:
        """The ordinary torch layer with these weights."""
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
        return {name: value is not None and value is not False if name == "bias" else value for name, value in found.items()}

    def fill_dense(self, twin: Any) -> None:
        """Copy weights and biases into the torch layer."""
        raise NotImplementedError

    def requires_grad_(self: Module, requires_grad: bool = True) -> Module:
        """Freeze or train this layer alone, although its θ is one parameter with that of others."""
        return set_frozen(self, not requires_grad)


class SparseLayer(SparseModule):
    """A layer whose weights are layer ``layer_id`` of a wiring.

    The first layer of a wiring holds it as a submodule, so that a model's ``parameters()`` and ``state_dict()`` see
    each wiring once; the other layers refer to it.
    """

    wiring: Wiring
    fast_wiring: Wiring
    layer_id: int
    bias: nn.Parameter | None
    made_dense = 0  # how often its weight was made dense, by whoever computed with it

    def wire(self, shape: LayerShape, bias: bool, options: dict[str, Any]) -> None:
        """Take the matrix that the options ask for, and a bias of zeros."""
        ((wiring, layer_id, owner),) = WiringOptions(**options).slots([shape])
        self.bias = zero_bias(wiring, shape.n_out) if bias else None
        self.attach(wiring, layer_id, owner=owner)

    def attach(self, wiring: Wiring, layer_id: int, *, owner: bool) -> None:
        self.layer_id = layer_id
        # Past nn.Module's registration: plain attributes, which copying and pickling keep identical. The second is
        # for the forward pass, where looking a submodule up takes longer than the work of a small layer.
        object.__setattr__(self, "fast_wiring", wiring)
        if owner:
            self.wiring = wiring
        else:
            object.__setattr__(self, "wiring", wiring)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "wiring" and value is not self.fast_wiring:
            raise AttributeError(
                f"the wiring of {type(self).__name__} cannot be replaced or wrapped, because other layers may share it: put "
                "another layer in its place, made with wiring=... and layer_id=..., or load a state dict"
            )
        super().__setattr__(name, value)

    @property
    def active(self) -> int:
        """Connections of this layer now."""
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
        """The weight by torch operators, dense, for whoever records them (``nn/trace.py``)."""
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

    # What torch's tools do to each module of a model

    def __prepare_scriptable__(self) -> NoReturn:
        kind = type(self).__name__
        raise RuntimeError(f"torch.jit.script cannot compile {kind}: script wb.to_dense(model), or use torch.jit.trace")

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
    """Freeze or train all of a module and nothing else: its sparse layers, and its parameters other than θ.

    Where all layers of a wiring are frozen, ``requires_grad`` of θ says so, as for any parameter; marks of layers are
    for some of them.
    """
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


def replace_modules(model: nn.Module, replacement: Mapping[int, nn.Module]) -> nn.Module:
    """The model with modules replaced, with their hooks, wherever it holds them, in place; ``replacement`` goes by ``id``."""
    for module in list(model.modules()):
        if id(module) in replacement:
            for hooks in _HOOKS:  # the very dictionaries: their handles still work
                replacement[id(module)].__dict__[hooks] = module.__dict__[hooks]
    if id(model) in replacement:
        return replacement[id(model)]
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if child is not None and id(child) in replacement:
                module._modules[name] = replacement[id(child)]
    return model
