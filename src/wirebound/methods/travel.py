"""A method's state inside its optimiser's: whoever keeps the optimiser's state dict keeps the method's with it.

Ages and the number of the next step, by which random numbers are drawn, would otherwise start again in a run that was
restored from nothing but the state dicts of model and optimiser, as most trainers do it.
"""

from __future__ import annotations

import warnings
import weakref
from typing import TYPE_CHECKING, Any

from torch import optim

if TYPE_CHECKING:
    from wirebound.methods.method import WiringMethod

KEY = "wirebound"  # of the method's state in the optimiser's state dict


def travel_with_optimizer(method: WiringMethod) -> None:
    """From now on the optimiser's state dict holds the state of this method, and loading one gives it back."""
    of = weakref.ref(method)  # the optimiser must not keep a method alive that nobody else has

    def put_in(optimizer: optim.Optimizer, state: dict[str, Any]) -> None:
        mine = of()
        if mine is not None and mine.has_claim():
            state[KEY] = {"method": type(mine).__name__, "state": mine.state_dict()}

    def take_out(optimizer: optim.Optimizer, state: dict[str, Any]) -> None:
        mine, held = of(), state.get(KEY)
        if mine is None or held is None or not mine.has_claim():
            return
        if held["method"] != type(mine).__name__:
            warnings.warn(
                f"the optimiser's state was kept with {held['method']}, here it is {type(mine).__name__}: its steps and the "
                "ages of its connections start again",
                stacklevel=2,
            )
            return
        mine.load_state_dict(held["state"])

    if not hasattr(method.optimizer, "_optimizer_state_dict_post_hooks"):
        return  # a wrapper that is an Optimizer by name only: its state dict is its own affair
    method.optimizer.register_state_dict_post_hook(put_in)
    method.optimizer.register_load_state_dict_pre_hook(take_out)
