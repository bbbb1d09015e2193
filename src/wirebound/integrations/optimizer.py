"""``RewiringOptimizer``: a method in the shape of a torch optimiser, for trainers that call ``optimizer.step()``.

    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.05))
    optimizer = RewiringOptimizer(method)      # optimizer.step() is method.step()

Its state dict is the optimiser's own with one key more, which holds the method's, so a trainer that keeps optimisers
keeps methods too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import optim

from wirebound.methods.method import Method, StepInfo
from wirebound.methods.travel import KEY


class RewiringOptimizer(optim.Optimizer):
    """The optimiser of ``method``, whose ``step`` is the method's.

    Parameter groups, state and hooks are those of the method's own optimiser, not copies: lr schedulers may be made
    of either.

    Args:
        method: any method of wirebound.

    Attributes:
        info: what the last step did (``StepInfo``), None before the first.
    """

    # GradScaler is to divide gradients by its scale itself: a fused inner optimiser would, but it does not move θ.
    _step_supports_amp_scaling = False

    # torch's own __init__ would give this object groups and state of its own.
    def __init__(self, method: Method) -> None:
        self.method = method
        self.info: StepInfo | None = None

    def __getattr__(self, name: str) -> Any:
        # Only what this object lacks comes here, torch's private tables of hooks among it.
        if name == "method":  # a copy that is still being made
            raise AttributeError(name)
        return getattr(self.method.optimizer, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.method.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.method.optimizer.param_groups = groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.method.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.method.optimizer.state = state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.method.optimizer.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self.method.optimizer.defaults = defaults

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """The method's step; with a closure, after the closure has left gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.info = self.method.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.method.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.method.optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        held = {"method": type(self.method).__name__, "state": self.method.state_dict()}
        return {**self.method.optimizer.state_dict(), KEY: held}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        held = state_dict.get(KEY)
        if held is None:
            raise ValueError(
                f"this optimiser state has no {KEY!r}: it was kept without RewiringOptimizer, so where the method "
                "stood is not known"
            )
        if held["method"] != type(self.method).__name__:
            raise ValueError(f"this optimiser state is of {held['method']}, here it is {type(self.method).__name__}")
        self.method.optimizer.load_state_dict({name: part for name, part in state_dict.items() if name != KEY})
        self.method.load_state_dict(held["state"])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"RewiringOptimizer({type(self.method).__name__}, {self.method.optimizer!r})"
