"""How a torch optimiser becomes a rule on K numbers: SGD and Adam by a kernel, any other by its own step.

A rule with a kernel is one pass with ℓ1, noise and death, on the very tensors that torch keeps in ``optimizer.state``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn, optim

from wirebound import ops
from wirebound.ops.faults import not_finite
from wirebound.ops.rule import NO_STATE, Rule, RuleKind, State
from wirebound.optim.carried import inner_optimizers
from wirebound.optim.pieces import layers_apart
from wirebound.wiring import Wiring

_ROWS = "keeps matrices with a row for each of the K connections"
# Optimisers that cannot be told by the shapes of their state, or only after it was made.
_REFUSED = {
    "LBFGS": "keeps one history for all parameters together",
    "SparseAdam": "takes sparse gradients, and those of θ are dense",
    "ZeroRedundancyOptimizer": "keeps the state of θ on one of the processes",
    **dict.fromkeys(("Shampoo", "ScalableShampoo", "DistributedShampoo", "SOAP"), _ROWS),
    "Kron": "keeps a preconditioner of all connections together",
    "DeMo": "sends a transform of all connections together",
}
_REFUSED_OPTIONS = {
    "differentiable": "a step that replaces connections has no derivative",
    "capturable": "a step that replaces connections cannot be part of a CUDA graph",
}
_AVERAGED = "evaluates at an average of θ, also below 0 where signs are bound; wb.SET, wb.RigL and wb.Fixed can take it"


class Trained(Protocol):
    """What a method moves: a wiring, or a matrix in full."""

    @property
    def theta(self) -> nn.Parameter: ...
    @property
    def budget(self) -> int: ...


def plain_step(optimizer: optim.Optimizer) -> None:
    """The optimiser's own step, without its hooks: they belong to the whole step, of which this is a part."""
    step = type(optimizer).step
    (step.__wrapped__ if getattr(step, "hooked", False) else step)(optimizer)  # type: ignore[attr-defined]


@contextmanager
def finite_step(optimizer: optim.Optimizer, wirings: Sequence[Trained], step: int) -> Iterator[None]:
    """The optimiser's own step, then the block; if θ is not finite after it, or the block fails, θ is as it was."""
    before = [wiring.theta.detach().clone() for wiring in wirings]
    with layers_apart(optimizer, wirings):
        plain_step(optimizer)
    try:
        yield
        if not all(ops.backend_of(wiring.theta).all_finite(wiring.theta.detach()) for wiring in wirings):
            raise not_finite(step)
    except (ValueError, FloatingPointError):
        with torch.no_grad():
            for wiring, theta in zip(wirings, before, strict=True):
                wiring.theta.copy_(theta)
        raise


def require_by_element(optimizer: optim.Optimizer, bound: bool) -> None:
    """Refuse an optimiser that cannot train connections that move, as far as its class tells."""
    everything = (optimizer, *inner_optimizers(optimizer))
    names = [kind.__name__ for one in everything for kind in type(one).__mro__]
    reasons = [_REFUSED[name] for name in names if name in _REFUSED]
    options = (option for one in everything for group in one.param_groups for option in _REFUSED_OPTIONS if group.get(option))
    reasons += [f"has {option}=True, but {_REFUSED_OPTIONS[option]}" for option in options]
    if bound and any("ScheduleFree" in name for name in names):
        reasons.append(_AVERAGED)
    if reasons:
        rule = "must keep its state by element, so that it can move with connections"
        raise ValueError(f"optimizer (={type(optimizer).__name__}) {rule}: it {reasons[0]}")


class OptimizerRule:
    """One optimiser's rule; this base is that of rules with a kernel."""

    kind: ClassVar[RuleKind]
    options: ClassVar[tuple[str, ...]]  # of a parameter group, on which the rule depends
    has_ages: ClassVar[bool] = False  # whether a step depends on how often a connection has been moved

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.newborns_by_layer = False  # they start with their layer's second moment instead of none

    def is_fresh(self, group: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
        """Whether the first step differs from all others, and this is the first."""
        return False

    def rule(self, group: Mapping[str, Any], lr: float, fresh: bool) -> Rule:
        """The numbers of a step, from a parameter group."""
        return Rule(self.kind, lr=lr)

    def keeps_state(self, group: Mapping[str, Any]) -> bool:
        return True

    def make_state(self, parameter: Tensor, group: Mapping[str, Any], state: dict[str, Any]) -> None:
        """Make what torch keeps for a parameter, as torch makes it, if there is none yet."""

    def state(self, kept: Mapping[str, Any], born: Tensor | None, clock: int) -> State:
        """torch's tensors under the names of the kernels."""
        return NO_STATE

    def second_moments(self, wiring: Wiring, group: Mapping[str, Any], clock: int) -> list[float]:
        """The mean squared gradient of each layer, which newborns start with; 0 where the rule has none."""
        return [0.0] * len(wiring.layers)

    def step(self, wirings: Sequence[Trained], step: int) -> None:
        """torch's own step of all parameters but θ."""
        thetas = [wiring.theta for wiring in wirings]
        if not self._moves_more_than(thetas):
            return
        grads = [theta.grad for theta in thetas]
        for theta in thetas:
            theta.grad = None
        try:
            plain_step(self.optimizer)
        finally:
            for theta, grad in zip(thetas, grads, strict=True):
                theta.grad = grad

    def _moves_more_than(self, thetas: Sequence[nn.Parameter]) -> bool:
        """Whether another parameter than these has a gradient."""
        ours = [*map(id, thetas)]
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in ours and parameter.grad is not None:
                    return True
        return False

    def carried(self, theta: nn.Parameter, group: Mapping[str, Any]) -> list[tuple[Tensor, float]]:
        """The tensors that move with their connections, and what a newborn has there: moments, averages of θ, all 0."""
        if not self.optimizer.state:  # torch takes longer to hash θ
            return []
        state = self.optimizer.state.get(theta, {})
        return [(value, 0.0) for value in state.values() if isinstance(value, Tensor) and value.dim()]
