"""Habits of torch that cannot mean what they say where one θ holds the connections of several layers: said once each."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn, optim

from wirebound.nn.sparse_layer import sparse_layers
from wirebound.wiring import Wiring


class Habits:
    """Looks at ``requires_grad`` of a sparse model, in each step, and at the optimiser's groups at the start."""

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer, wirings: Sequence[Wiring]) -> None:
        self._named = [(name, layer) for name, layer in sparse_layers(model) if len(layer.wiring.layers) > 1]
        thetas = {id(wiring.theta) for wiring in wirings}
        self._own = [[p for p in layer.parameters() if id(p) not in thetas] for _, layer in self._named]
        self._watched = [w.theta for w in wirings if len(w.layers) > 1] + [p for own in self._own for p in own]
        self._flags: list[bool] = []
        self._said: set[str] = set()
        self._look_at_groups(optimizer, wirings)

    def look(self) -> None:
        """Compare what is frozen with what can be, if anything has changed."""
        flags = [parameter.requires_grad for parameter in self._watched]
        if flags == self._flags:
            return
        self._flags = flags
        for wiring in {id(layer.wiring): layer.wiring for _, layer in self._named}.values():
            names: dict[tuple[bool, bool], list[str]] = {}  # by (biases are trained, connections are frozen)
            for (name, layer), own in zip(self._named, self._own, strict=True):
                if own and layer.wiring is wiring:
                    key = (any(p.requires_grad for p in own), wiring.is_frozen(layer.layer_id))
                    names.setdefault(key, []).append(name)
            trained, bare, thawed = (names.get(key, []) for key in ((True, False), (False, False), (True, True)))
            if not wiring.theta.requires_grad and trained:
                self._say(
                    "the θ of all sparse layers of one budget has requires_grad=False, so no connection of "
                    f"{_list(trained)} is trained, although their biases are: use wb.freeze(module) and wb.unfreeze(module)"
                )
            elif wiring.theta.requires_grad and trained and bare:
                one_theta = "θ is one parameter for all layers of a budget; freeze layers by wb.freeze(module)"
                self._say(f"biases of {_list(bare)} are frozen, but their connections are not: {one_theta}")
            if thawed:
                but = "but their biases are trained: call wb.unfreeze(module) to train both"
                self._say(f"connections of {_list(thawed)} are frozen by wb.freeze, {but}")

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            warnings.warn(sentence, UserWarning, stacklevel=7)

    def _look_at_groups(self, optimizer: optim.Optimizer, wirings: Sequence[Wiring]) -> None:
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for wiring in wirings:
            group = groups[id(wiring.theta)]
            _warn_of_undecayed(optimizer, wiring, group)
            if len(wiring.layers) == 1 or wiring.rates is not None:
                continue
            for option in ("lr", "weight_decay"):
                found: dict[float, str] = {}
                for (name, layer), parameters in zip(self._named, self._own, strict=True):
                    held = [groups[id(p)] for p in parameters if id(p) in groups]
                    if layer.wiring is wiring and held and option in held[0]:
                        found.setdefault(float(held[0][option]), name)
                if len(found) > 1:
                    values = ", ".join(f"{value:g} for {name!r}" for value, name in found.items())
                    sentence = (
                        f"parameter groups give biases of one budget different {option} ({values}), but θ is one parameter "
                        f"for all its layers and has {option} {float(group[option]):g}: give connections their own by "
                        f"wb.set_rates(module, {option}=factor)"
                    )
                    warnings.warn(sentence, UserWarning, stacklevel=6)


def _warn_of_undecayed(optimizer: optim.Optimizer, wiring: Wiring, group: Mapping[str, Any]) -> None:
    if group.get("weight_decay", 0) or wiring.theta.dim() > 1:
        return
    for other in optimizer.param_groups:
        matrices = any(p.dim() > 1 for p in other["params"]) or not other["params"]
        if (decay := float(other.get("weight_decay") or 0)) and matrices:
            names = _list([layer.name for layer in wiring.layers])
            sentence = (
                f"θ of {names} has weight_decay 0 while matrices have {decay:g}: it has one dimension, so p.dim() >= 2 "
                "leaves it out; choose by name ('theta'), or say it by wb.set_rates(module, weight_decay=0)"
            )
            warnings.warn(sentence, UserWarning, stacklevel=7)
            return


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
