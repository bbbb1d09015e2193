"""What an optimiser's rule is: how its parameter groups become numbers, which state it has, and who steps what.

A rule with a kernel is computed by ``update_`` of a backend in one pass with ℓ1, noise and death, on the very tensors that torch
keeps in ``optimizer.state``; torch's own step does the rest of the model. Its file registers it by optimiser type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from torch import Tensor, nn, optim

from wirebound.ops.rule import NO_STATE, Rule, RuleKind, State

_RULES: dict[type[optim.Optimizer], type[OptimizerRule]] = {}
_R = TypeVar("_R", bound="type[OptimizerRule]")


class Trained(Protocol):
    """What a method moves: a wiring, or a matrix in full."""

    @property
    def theta(self) -> nn.Parameter: ...

    @property
    def budget(self) -> int: ...


def of_optimizers(*kinds: type[optim.Optimizer]) -> Callable[[_R], _R]:
    """Register a rule for optimisers of exactly these types."""

    def register(rule: _R) -> _R:
        _RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def find_rule(optimizer: optim.Optimizer) -> type[OptimizerRule] | None:
    """The rule of an optimiser of this very type; a subclass may step in another way."""
    return _RULES.get(type(optimizer))


def plain_step(optimizer: optim.Optimizer) -> None:
    """The optimiser's own step, without its hooks: they belong to the whole step, of which this is a part."""
    step = type(optimizer).step
    (step.__wrapped__ if getattr(step, "hooked", False) else step)(optimizer)  # type: ignore[attr-defined]


class OptimizerRule:
    """One optimiser's rule; this base is that of rules with a kernel."""

    kind: ClassVar[RuleKind]
    options: ClassVar[tuple[str, ...]]  # of a parameter group, on which the rule depends
    has_ages: ClassVar[bool] = False  # whether a step depends on how often a connection has been moved

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self.optimizer = optimizer

    def is_fresh(self, group: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
        """Whether the first step differs from all others, and this is the first."""
        return False

    def rule(self, group: Mapping[str, Any], lr: float, fresh: bool) -> Rule:
        """The numbers of a step, from a parameter group."""
        raise NotImplementedError

    def keeps_state(self, group: Mapping[str, Any]) -> bool:
        return True

    def make_state(self, parameter: Tensor, group: Mapping[str, Any], state: dict[str, Any]) -> None:
        """Make what torch keeps for a parameter, as torch makes it, if there is none yet."""

    def state(self, kept: Mapping[str, Any], born: Tensor | None, clock: int) -> State:
        """torch's tensors under the names of the kernels."""
        return NO_STATE

    def step(self, wirings: Sequence[Trained], step: int) -> None:
        """torch's own step of all parameters but θ."""
        thetas = [wiring.theta for wiring in wirings]
        ours = [id(theta) for theta in thetas]
        parameters = (p for group in self.optimizer.param_groups for p in group["params"])
        if not any(p.grad is not None and id(p) not in ours for p in parameters):
            return
        grads = [theta.grad for theta in thetas]
        for theta in thetas:
            theta.grad = None
        try:
            plain_step(self.optimizer)
        finally:
            for theta, grad in zip(thetas, grads, strict=True):
                theta.grad = grad

    def carried(self, theta: nn.Parameter, group: Mapping[str, Any]) -> list[tuple[Tensor, float]]:
        """The tensors that move with their connections, and what a newborn has there: moments, averages of θ, all 0."""
        state = self.optimizer.state.get(theta, {})
        return [(value, 0.0) for value in state.values() if isinstance(value, Tensor) and value.dim()]
