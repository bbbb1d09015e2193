"""Between torch's optimisers and wirings: who moves θ, and which of the optimiser's tensors ride along.

SGD, Adam and AdamW are computed by ``ops.update_`` in one pass with ℓ1, noise and death, on the very tensors that
torch keeps in ``optimizer.state``; torch's own step does the rest of the model. Every other optimiser moves θ itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn, optim

from wirebound import ops
from wirebound.ops.faults import not_finite
from wirebound.ops.rule import NO_STATE, Rule, RuleKind, State
from wirebound.optim.carried import carried_tensors, is_schedule_free, refusal, starts
from wirebound.optim.pieces import layers_apart
from wirebound.wiring import Wiring

_OWN_RULES: dict[type[optim.Optimizer], RuleKind] = {
    optim.SGD: RuleKind.SGD,
    optim.Adam: RuleKind.ADAM,
    optim.AdamW: RuleKind.ADAM,
}
# What of a parameter group each rule depends on.
_SGD = ("lr", "momentum", "dampening", "nesterov", "weight_decay", "maximize")
_ADAM = ("lr", "weight_decay", "betas", "eps", "maximize")


class Trained(Protocol):
    """What a method moves: a wiring, or a matrix in full."""

    @property
    def theta(self) -> nn.Parameter: ...

    @property
    def budget(self) -> int: ...


class OptimizerAdapter:
    """One optimiser and the wirings (or whole matrices) that it trains."""

    def __init__(
        self, optimizer: optim.Optimizer, wirings: Sequence[Trained], *, ages: bool = True, bound: bool = False
    ) -> None:
        reason = refusal(optimizer)
        if reason is None and bound and is_schedule_free(optimizer):
            reason = (
                "evaluates at an average of θ, which leaves θ >= 0 where signs are bound; wb.SET, wb.RigL and wb.Fixed "
                "can take it"
            )
        if reason is not None:
            raise ValueError(
                f"optimizer (={type(optimizer).__name__}) must keep its state by element, so that it can move with "
                f"connections: it {reason}"
            )
        self.optimizer = optimizer
        self.wirings = wirings
        self.kind = _OWN_RULES.get(type(optimizer), RuleKind.NONE)
        self._found: dict[int, list[tuple[Tensor, float]]] = {}  # of the step that is being taken
        self._starts: dict[str, float] | None = None  # of other optimisers' state, by name
        self._rules: dict[int, tuple[tuple[Any, ...], Rule]] = {}
        # How often Adam has moved each θ, and the count at which each connection was born, for the bias correction.
        self.updates = [0] * len(wirings)
        self.born: list[Tensor] = []
        if self.kind is RuleKind.ADAM and ages:
            self.born = [torch.zeros(w.budget, dtype=torch.int32, device=w.theta.device) for w in wirings]

    def group(self, wiring: Trained) -> dict[str, Any]:
        """The optimiser's parameter group that holds this wiring's θ."""
        theta = wiring.theta
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter is theta:
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
        """torch's own step, the method's number ``step``: for all parameters, or for all but θ where we compute the rule."""
        if self.kind is RuleKind.NONE:
            self._step_all(step)
            return
        thetas = [wiring.theta for wiring in self.wirings]
        if not self._has_other_work(thetas):
            # What torch's lr schedulers note when step() is called; they warn if it never was.
            self.optimizer._opt_called = True  # type: ignore[attr-defined]
            return
        grads = [theta.grad for theta in thetas]
        for theta in thetas:
            theta.grad = None
        try:
            self.optimizer.step()
        finally:
            for theta, grad in zip(thetas, grads, strict=True):
                theta.grad = grad

    def _step_all(self, step: int) -> None:
        """The step of an optimiser that moves θ itself; θ stays as it was if it keeps state that cannot move along, or
        where θ would not be finite."""
        before = [wiring.theta.detach().clone() for wiring in self.wirings]
        with layers_apart(self.optimizer, self.wirings):
            self.optimizer.step()
        try:
            if not all(ops.all_finite(wiring.theta.detach()) for wiring in self.wirings):
                raise not_finite(step)
            for number, wiring in enumerate(self.wirings):
                self._found[number] = self._find(number, self.group(wiring))
        except (ValueError, FloatingPointError):
            with torch.no_grad():
                for wiring, theta in zip(self.wirings, before, strict=True):
                    wiring.theta.copy_(theta)
            raise

    def _has_other_work(self, thetas: list[nn.Parameter]) -> bool:
        """Whether anything but θ has a gradient, or anyone waits for the optimiser's step to be called."""
        if self.optimizer._optimizer_step_pre_hooks or self.optimizer._optimizer_step_post_hooks:
            return True
        ours = [id(theta) for theta in thetas]
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and id(parameter) not in ours:
                    return True
        return False

    def rule(self, number: int, group: dict[str, Any]) -> Rule:
        """The numbers of this step, from the group as a scheduler has left it; the same object while they last."""
        if self.kind is RuleKind.SGD:
            fresh = bool(group["momentum"]) and self._torch_state(number).get("momentum_buffer") is None
            key = (fresh, *map(group.__getitem__, _SGD))
        elif self.kind is RuleKind.ADAM:
            key = (False, *map(group.__getitem__, _ADAM), group.get("decoupled_weight_decay"))
        else:
            key = (False, group["lr"])
        known = self._rules.get(number)
        if known is None or known[0] != key:
            # A rate may be a tensor that is changed in place: only its number can be compared with the next step's.
            key = tuple(float(value) if isinstance(value, Tensor) else value for value in key)
            known = self._rules[number] = (key, self._rule(group, key[0]))
        return known[1]

    def _rule(self, group: dict[str, Any], fresh: bool) -> Rule:
        lr = self.lr(group)
        if self.kind is RuleKind.SGD:
            return Rule(
                RuleKind.SGD,
                lr=lr,
                momentum=float(group["momentum"]),
                dampening=float(group["dampening"]),
                nesterov=group["nesterov"],
                weight_decay=float(group["weight_decay"]),
                maximize=group["maximize"],
                fresh=fresh,
            )
        if self.kind is RuleKind.ADAM:
            beta1, beta2 = group["betas"]
            return Rule(
                RuleKind.ADAM,
                lr=lr,
                weight_decay=float(group["weight_decay"]),
                beta1=float(beta1),
                beta2=float(beta2),
                eps=float(group["eps"]),
                decoupled=group.get("decoupled_weight_decay", isinstance(self.optimizer, optim.AdamW)),
                maximize=group["maximize"],
            )
        return Rule(RuleKind.NONE, lr=lr)

    def _torch_state(self, number: int) -> dict[str, Any]:
        return self.optimizer.state[self.wirings[number].theta]

    def state(self, number: int, group: dict[str, Any]) -> State:
        """torch's tensors for the θ of a wiring, made as torch makes them if this is the first step."""
        if self.kind is RuleKind.NONE or (self.kind is RuleKind.SGD and not group["momentum"]):
            return NO_STATE
        theta = self.wirings[number].theta
        state = self.made_state(theta, group)
        for name, value in state.items():
            # After .double() or .to(), state follows its parameter, as it does where an optimiser's state is loaded.
            if isinstance(value, Tensor) and value.shape == theta.shape and value.dtype is not theta.dtype:
                state[name] = value.to(theta.dtype)
        if self.kind is RuleKind.SGD:
            return State(momentum=state["momentum_buffer"])
        state["step"] += 1
        self._keep_ages(number)
        return State(
            exp_avg=state["exp_avg"],
            exp_avg_sq=state["exp_avg_sq"],
            max_exp_avg_sq=state.get("max_exp_avg_sq"),
            born=self.born[number],
            clock=self._count_update(number, state["step"]),
        )

    def _keep_ages(self, number: int) -> None:
        """Connections of frozen layers take no step, so they do not grow older either."""
        wiring = self.wirings[number]
        if isinstance(wiring, Wiring) and wiring.has_frozen:
            for layer, (first, last) in enumerate(itertools.pairwise(wiring.bounds)):
                if wiring.is_frozen(layer):
                    self.born[number][first:last] += 1

    def _count_update(self, number: int, counted: Tensor) -> int:
        """The number of this update of θ.

        torch's own count is right also where an optimiser was used before, or its state was loaded; it is a float32, which
        stops counting at 2^24.
        """
        self.updates[number] = self.updates_before(number, int(counted) - 1) + 1
        return self.updates[number]

    def ages(self) -> dict[str, Any]:
        """What a method's state dict holds of the ages of connections."""
        return {"born": [born.clone() for born in self.born], "updates": list(self.updates) if self.born else []}

    def load_updates(self, state: Mapping[str, Any]) -> None:
        """Go on counting where the state was kept; before counts were kept there, every step was an update."""
        self.updates = [int(n) for n in state.get("updates") or [state["steps"]] * len(self.updates)]

    def updates_before(self, number: int, count: int) -> int:
        """How often θ has been moved, where torch has counted so many."""
        return count if count < (1 << 24) - 1 else max(self.updates[number], count)

    def made_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Any]:
        """What torch keeps for a parameter, made as torch makes it if there is none yet."""
        state: dict[str, Any] = self.optimizer.state[parameter]
        if self.kind is RuleKind.SGD:
            if group["momentum"] and state.get("momentum_buffer") is None:
                state["momentum_buffer"] = torch.zeros_like(parameter, requires_grad=False)
        elif self.kind is RuleKind.ADAM and "step" not in state:
            moments = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))
            made = {name: torch.zeros_like(parameter, requires_grad=False) for name in moments}
            state.update(step=torch.tensor(0.0, device="cpu"), **made)  # all at once: an interrupt may come in between
        return state

    def carried(self, number: int, group: dict[str, Any]) -> list[tuple[Tensor, float]]:
        """The arrays that move with their connections, and what a newborn of this update has there."""
        theta = self.wirings[number].theta
        if self.kind is RuleKind.NONE:
            found = self._found.pop(number, None) or self._find(number, group)
        else:  # moments, and an average of θ perhaps: all of them start at 0
            state = self.optimizer.state.get(theta, {})
            found = [(value, 0.0) for value in state.values() if isinstance(value, Tensor) and value.dim()]
        if self.born:
            found.append((self.born[number], self.updates[number]))
        return found

    def _find(self, number: int, group: dict[str, Any]) -> list[tuple[Tensor, float]]:
        """What an optimiser keeps whose rule we do not know, wherever it keeps it."""
        theta = self.wirings[number].theta
        tensors = list(carried_tensors(self.optimizer, theta))
        if tensors and self._starts is None:
            self._starts = starts(self.optimizer, group, theta)
        return [(value, (self._starts or {}).get(name, 0.0)) for name, value in tensors]
