"""``OptimizerAdapter``: between a torch optimiser and the wirings that it trains."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, optim

from wirebound.ops.rule import NO_STATE, Rule, State
from wirebound.optim.adam import AdamRule
from wirebound.optim.other import OtherRule
from wirebound.optim.rule import OptimizerRule, Trained, require_by_element
from wirebound.optim.sgd import SGDRule
from wirebound.wiring import Wiring

# By the very type: a subclass may step in another way.
RULES: dict[type[optim.Optimizer], type[OptimizerRule]] = {optim.SGD: SGDRule, optim.Adam: AdamRule, optim.AdamW: AdamRule}

_EXACT = (1 << 24) - 1  # torch counts Adam's steps as a float32, which stops counting there


class OptimizerAdapter:
    """One optimiser and the wirings (or whole matrices) that it trains.

    ``ages``: keep the ages of connections, where the rule depends on them; ``bound``: θ must stay >= 0.
    """

    def __init__(
        self, optimizer: optim.Optimizer, wirings: Sequence[Trained], *, ages: bool = True, bound: bool = False
    ) -> None:
        require_by_element(optimizer, bound)
        self.optimizer, self.wirings = optimizer, wirings
        self.own = RULES.get(type(optimizer), OtherRule)(optimizer)
        self.kind = self.own.kind
        self._rules: dict[int, tuple[tuple[Any, ...], Rule]] = {}
        self._places: dict[int, tuple[int, int]] = {}  # by θ: the number of its group and its place in there
        # How often each θ was moved, and the count at which each connection was born, for Adam's bias correction.
        self.updates = [0] * len(wirings)
        self.born: list[Tensor] = []
        if self.own.has_ages and ages:
            self.born = [torch.zeros(w.budget, dtype=torch.int32, device=w.theta.device) for w in wirings]

    def group(self, wiring: Trained) -> dict[str, Any]:
        """The optimiser's parameter group that holds this wiring's θ."""
        theta, groups = wiring.theta, self.optimizer.param_groups
        number, place = self._places.get(id(theta), (0, 0))
        if number < len(groups):  # groups can be replaced
            params = groups[number]["params"]
            if place < len(params) and params[place] is theta:
                return groups[number]
        for number, group in enumerate(groups):
            for place, parameter in enumerate(group["params"]):
                if parameter is theta:
                    self._places = {**self._places, id(theta): (number, place)}
                    return group
        raise ValueError("the wiring's parameter is no longer in the optimiser")

    def lr(self, group: Mapping[str, Any]) -> float:
        """η of a group, as a scheduler has left it."""
        if "lr" not in group:
            name = type(self.optimizer).__name__
            raise ValueError(f"optimizer (={name}) must have 'lr' in its parameter groups, by which ℓ1 and noise go")
        lr = float(group["lr"])
        if not (math.isfinite(lr) and lr >= 0):
            raise ValueError(f"lr (={lr}) must be a finite number >= 0")
        return lr

    def require_rates(self) -> None:
        """Refuse a learning rate that is none, before anything is moved or counted."""
        for wiring in self.wirings:
            self.lr(self.group(wiring))

    def step_torch(self, step: int) -> None:
        """torch's own step, the method's number ``step``: of all parameters, or of all but θ where a kernel moves θ."""
        self.own.step(self.wirings, step)

    def rule(self, number: int, group: dict[str, Any]) -> Rule:
        """The numbers of this step, from the group as a scheduler has left it; the same object while they last."""
        fresh = False
        if self.own.keeps_state(group):
            fresh = self.own.is_fresh(group, self.optimizer.state.get(self.wirings[number].theta, {}))
        key = (fresh, *map(group.get, self.own.options))
        known = self._rules.get(number)
        if known is None or known[0] != key:
            # A rate may be a tensor that is changed in place: only its number can be compared with the next step's.
            key = tuple(float(value) if isinstance(value, Tensor) else value for value in key)
            known = self._rules[number] = (key, self.own.rule(group, self.lr(group), fresh))
        return known[1]

    def made_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Any]:
        """What torch keeps for a parameter, made as torch makes it if there is none yet."""
        state: dict[str, Any] = self.optimizer.state[parameter]
        self.own.make_state(parameter, group, state)
        return state

    def state(self, number: int, group: dict[str, Any]) -> State:
        """torch's tensors for the θ of a wiring, in a step that is about to be taken and counts."""
        if not self.own.keeps_state(group):
            return NO_STATE
        theta = self.wirings[number].theta
        kept = self.made_state(theta, group)
        for name, value in kept.items():
            # After .double() or .to(), state follows its parameter, as it does where an optimiser's state is loaded.
            if isinstance(value, Tensor) and value.shape == theta.shape and value.dtype is not theta.dtype:
                kept[name] = value.to(theta.dtype)
        if not self.own.has_ages:
            return self.own.state(kept, None, 0)
        kept["step"] += 1
        wiring = self.wirings[number]
        if isinstance(wiring, Wiring) and wiring.has_frozen:
            for layer, (first, last) in enumerate(itertools.pairwise(wiring.bounds)):
                if self.born and wiring.is_frozen(layer):  # its connections take no step, so they do not grow older either
                    self.born[number][first:last] += 1
        self.updates[number] = self.updates_before(number, int(kept["step"]) - 1) + 1
        return self.own.state(kept, self.born[number] if self.born else None, self.updates[number])

    def second_moments(self, number: int) -> list[float]:
        """What the gradients of each layer of a wiring are, squared, as far as the optimiser keeps that; else 0."""
        wiring = self.wirings[number]
        assert isinstance(wiring, Wiring)
        return self.own.second_moments(wiring, self.group(wiring), self.updates[number])

    def updates_before(self, number: int, count: int) -> int:
        """How often θ has been moved, where torch has counted so many, also before the method or in a loaded state."""
        return count if count < _EXACT else max(self.updates[number], count)

    def ages(self) -> dict[str, Any]:
        """What a method's state dict holds of the ages of connections."""
        return {"born": [born.clone() for born in self.born], "updates": list(self.updates) if self.own.has_ages else []}

    def load_updates(self, state: Mapping[str, Any]) -> None:
        """Resume counting where the state was kept; before counts were kept there, every step was an update."""
        self.updates = [int(n) for n in state.get("updates") or [state["steps"]] * len(self.updates)]

    def carried(self, number: int, group: dict[str, Any]) -> list[tuple[Tensor, float]]:
        """The arrays that move with their connections, and what a newborn of this update has there."""
        found = self.own.carried(self.wirings[number].theta, group)
        return [*found, (self.born[number], self.updates[number])] if self.born else found
