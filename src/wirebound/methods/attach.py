"""A method attaches itself to its optimiser, whose ``step`` then is the method's, whoever calls it.

Hooks and lr schedulers see one step, and its state dict holds the method's: any trainer's checkpoint resumes both.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import optim
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from wirebound.optim.rule import plain_step

if TYPE_CHECKING:
    from wirebound.methods.method import Method

KEY = "wirebound"  # of the method's state in the optimiser's state dict
_ATTACHMENT = "_wirebound_attachment"  # torch neither copies nor pickles attributes of optimisers


def attachment(optimizer: Any) -> Attachment | None:
    return getattr(optimizer, "__dict__", {}).get(_ATTACHMENT)


def attached(optimizer: Any) -> Method | None:
    """The method that is attached to an optimiser, or to the one inside whatever a trainer has put around it."""
    while optimizer is not None:
        if (found := attachment(optimizer)) is not None:
            return found.method
        optimizer = getattr(optimizer, "optimizer", None)
    return None


def require_free(optimizer: optim.Optimizer) -> None:
    """Refuse an optimiser that has a method already, or whose step is not made from the gradients that are there."""
    kind, other = type(optimizer).__name__, attached(optimizer)
    if other is not None:
        instead = "call its detach() first, or make a new optimiser"
        raise ValueError(f"optimizer (={kind}) has a {type(other).__name__} attached already: {instead}")
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        instead = "use one that steps from gradients that are there, such as SGD or AdamW"
        raise ValueError(f"optimizer (={kind}) evaluates a closure several times in a step, where connections move: {instead}")


class Attachment:
    """What is put on an optimiser: the method, and how to take it off again."""

    def __init__(self, method: Method) -> None:
        optimizer = method.optimizer
        require_free(optimizer)
        self.method = method
        is_torch = hasattr(optimizer, "_optimizer_step_pre_hooks")  # else a wrapper that is an Optimizer by name only
        own: dict[str, Callable[..., Any]] = {"step": _hooked_step if is_torch else _step, "zero_grad": _zero_grad}
        self.mine = {name: MethodType(function, optimizer) for name, function in own.items()}
        self.before = {name: vars(optimizer)[name] for name in own if name in vars(optimizer)}  # an lr scheduler's
        vars(optimizer).update({**self.mine, _ATTACHMENT: self})
        self.handles = []
        if hasattr(optimizer, "_optimizer_state_dict_post_hooks"):
            put_in, take_out = optimizer.register_state_dict_post_hook, optimizer.register_load_state_dict_pre_hook
            self.handles = [put_in(_put_in), take_out(_take_out)]

    def remove(self) -> None:
        own = vars(self.method.optimizer)
        own.pop(_ATTACHMENT, None)
        for name, mine in self.mine.items():
            if own.get(name) is mine:  # else someone has wrapped it since; it then finds no method and steps plainly
                del own[name]
                own.update({name: self.before[name]} if name in self.before else {})
        for handle in self.handles:
            handle.remove()


def _step(optimizer: optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
    """The method's step; with a closure, after the closure has left gradients."""
    loss, found = None, attachment(optimizer)
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    optimizer._opt_called = True  # type: ignore[attr-defined]  # lr schedulers warn where it never was
    if found is None:
        plain_step(optimizer)
    elif unscale_(optimizer):
        found.method.info = found.method.take_step()
    else:
        found.method.info = found.method.report(found.method.layer_active(), [0] * len(found.method.shapes))
    return loss


def _zero_grad(optimizer: optim.Optimizer, set_to_none: bool = True) -> None:
    type(optimizer).zero_grad(optimizer, set_to_none)
    if (found := attachment(optimizer)) is not None:
        found.method.forget_gradients()


_profiled_step = optim.Optimizer.profile_hook_step(_step)


def _hooked_step(optimizer: optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
    """The method's step between the hooks of the optimiser, and seen by torch's profiler; neither costs when not there."""
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    everyone = _global_optimizer_pre_hooks or _global_optimizer_post_hooks
    hooked = own or everyone or torch.autograd.profiler._is_profiler_enabled
    return (_profiled_step if hooked else _step)(optimizer, *args, **kwargs)


for _function in (_step, _hooked_step):
    _function.__dict__["_wrapped_by_lr_sched"] = True  # they need not wrap it to see its steps


def _put_in(optimizer: optim.Optimizer, state: dict[str, Any]) -> None:
    found = attachment(optimizer)
    if found is not None and found.method.has_claim():
        state[KEY] = {"method": type(found.method).__name__, "state": found.method.state_dict()}


def _take_out(optimizer: optim.Optimizer, state: dict[str, Any]) -> None:
    found, held = attachment(optimizer), state.get(KEY)
    if found is None or held is None or not found.method.has_claim():
        return
    before, now = held["method"], type(found.method).__name__
    if before == now:
        found.method.load_state_dict(held["state"])
    else:
        lost = "its steps and the ages of its connections start again"
        warnings.warn(f"the optimiser's state was kept with {before}, here it is {now}: {lost}", stacklevel=2)


def unscale_(optimizer: optim.Optimizer) -> bool:
    """Divide all gradients by the scale that GradScaler leaves on ``fused=True`` optimisers; False: skip the step."""
    scale, found = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
    if scale is None and found is None:
        return True
    # The scaler deletes both afterwards, so they stay; None means that there is nothing left to divide by.
    optimizer.grad_scale = optimizer.found_inf = None  # type: ignore[attr-defined]
    if found is not None and float(found):
        return False
    with torch.no_grad():
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if scale is not None and parameter.grad is not None:
                parameter.grad.div_(scale.to(parameter.grad.device))
    return True
