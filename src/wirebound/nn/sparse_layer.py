"""What all sparse layers share: each is a part of a wiring, and one layer of the wiring owns it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from torch import Tensor, nn

from wirebound.nn.trace import plain_matrix, recorded
from wirebound.nn.weight import lazy_weight, refuse
from wirebound.wiring import Wiring

Module = TypeVar("Module", bound=nn.Module)
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


class SparseLayer(nn.Module):
    """A layer whose weights are part ``part`` of a wiring.

    The first layer of a wiring holds it as a submodule, so that a model's ``parameters()`` and ``state_dict()`` see
    each wiring once; the other layers refer to it.
    """

    wiring: Wiring
    fast_wiring: Wiring
    part: int
    made_dense = 0  # how often its weight was made dense, by whoever computed with it

    def attach(self, wiring: Wiring, part: int, *, owner: bool) -> None:
        self.part = part
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
                f"the wiring of {type(self).__name__} cannot be replaced or wrapped, because other layers may be parts of it: "
                "put another layer in its place, made with wiring=... and part=..., or load a state dict"
            )
        super().__setattr__(name, value)

    @property
    def active(self) -> int:
        """Connections of this layer now."""
        return self.wiring.layer_active[self.part]

    def requires_grad_(self: Module, requires_grad: bool = True) -> Module:
        """Freeze or train this layer alone, although its θ is one parameter with that of others."""
        return set_frozen(self, not requires_grad)

    def arranged(self, matrix: Tensor) -> Tensor:
        """The matrix [n_out, n_in] as the weight of the torch twin lies: a view of it."""
        return matrix

    @property
    def weight(self) -> Tensor:
        """The weight as the torch twin has it: made only when someone computes with it (``nn/weight.py``)."""
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
        return self.arranged(plain_matrix(self.fast_wiring, self.part))

    def dense_weight(self) -> Tensor:
        """The weights scattered into the dense matrix of the torch twin. Dense by nature."""
        return self.arranged(self.wiring.layer_dense(self.part))

    def dense_twin(self) -> nn.Module:
        """The ordinary torch layer with these weights."""
        raise TypeError(f"{type(self).__name__} has no dense twin")

    # What torch's tools do to each module of a model

    def __prepare_scriptable__(self) -> NoReturn:
        raise RuntimeError(
            f"torch.jit.script cannot compile {type(self).__name__}: script wb.to_dense(model), or use torch.jit.trace"
        )

    @property
    def qconfig(self) -> Any:
        """The setting of torch.ao.quantization for this layer, which it does not follow."""
        return self.__dict__.get("qconfig")

    @qconfig.setter
    def qconfig(self, value: Any) -> None:
        self.__dict__["qconfig"] = value
        warnings.warn(
            "torch.ao.quantization leaves sparse layers as they are: quantise wb.to_dense(model) instead, or write int8 "
            "weights with wirebound.export.to_c",
            stacklevel=2,
        )

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
    found: dict[int, Wiring] = {}
    for _, layer in sparse_layers(model):
        found.setdefault(id(layer.wiring), layer.wiring)
    return list(found.values())


def set_frozen(module: Module, frozen: bool) -> Module:
    """Freeze or train all of a module and nothing else: its sparse layers, and its parameters other than θ.

    Where all layers of a wiring are frozen, ``requires_grad`` of θ says so, as for any parameter; marks of layers are
    for some of them.
    """
    parts: dict[int, set[int]] = {}
    shared: dict[int, Wiring] = {}
    for _, layer in sparse_layers(module):
        shared[id(layer.wiring.theta)] = layer.wiring
        parts.setdefault(id(layer.wiring.theta), set()).add(layer.part)
    for key, wiring in shared.items():
        before = wiring.layer_rates.frozen if wiring.theta.requires_grad else (True,) * len(wiring.layers)
        after = tuple(frozen if part in parts[key] else was for part, was in enumerate(before))
        whole = all(after)
        wiring.set_layer_rates(replace(wiring.layer_rates, frozen=(False,) * len(after) if whole else after))
        wiring.theta.requires_grad_(not whole)
    for parameter in module.parameters():
        if id(parameter) not in shared:
            parameter.requires_grad_(not frozen)
    return module


def replace_modules(model: nn.Module, replacement: Mapping[int, nn.Module]) -> nn.Module:
    """The model with modules replaced wherever it holds them, in place; ``replacement`` goes by ``id``.

    Who listens in on a module from now on listens in on what stands in its place.
    """
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
