"""All or nothing: before objects are given the state of a file, what they have is noted, and put back if one fails."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound.checkpoint.errors import CheckpointError
from wirebound.wiring import Wiring


@dataclass(frozen=True)
class Change:
    """One object that is given state: its name, how, and how it gets back what it had."""

    name: str
    apply: Callable[[], Any]
    put_back: Callable[[], Any]


def apply_all(changes: Sequence[Change]) -> None:
    """Apply the changes in their order; if one fails, or is interrupted, put back all and say why."""
    begun = 0
    try:
        for change in changes:
            begun += 1
            change.apply()
    except BaseException as error:
        lost = _undo(changes)
        if not isinstance(error, Exception):
            raise
        after = f", and {', '.join(lost)} could not be put back" if lost else ": everything is as it was"
        reason = f"{type(error).__name__}: {str(error)[:200]}".replace("\n", " ")
        raise CheckpointError(f"the {changes[begun - 1].name} did not take its state ({reason}){after}") from error


def _undo(changes: Sequence[Change]) -> list[str]:
    """Put back the last first, because an object may have written to those before it; names of those that failed.

    Those whose turn had not come too: hooks of an optimiser may carry the state of its method.
    """
    lost = []
    for change in reversed(changes):
        try:
            change.put_back()
        except Exception:
            lost.append(change.name)
    return lost


def change_of_model(model: nn.Module, state: dict[str, Any]) -> Change:
    """Its tensors are put back one by one, past the hooks of users, which may be what failed."""
    tensors = [(tensor, tensor.detach().clone()) for tensor in (*model.parameters(), *model.buffers())]
    extra = [
        (module, copy.deepcopy(module.get_extra_state()))
        for module in model.modules()
        if type(module).get_extra_state is not nn.Module.get_extra_state
    ]
    # What a wiring knows beside its arrays: whose it is, and what a backward pass has left for the next step.
    known = [(module, dict(module.__dict__)) for module in model.modules() if isinstance(module, Wiring)]

    @torch.no_grad()
    def put_back() -> None:
        for tensor, before in tensors:
            tensor.copy_(before)
        for wiring, attributes in known:
            wiring.__dict__.update(attributes)
            wiring.forget()
        for module, before in extra:
            module.set_extra_state(before)

    return Change("model", lambda: model.load_state_dict(state), put_back)


def change_of_optimizer(optimizer: optim.Optimizer, state: dict[str, Any]) -> Change:
    if type(optimizer).load_state_dict is not optim.Optimizer.load_state_dict:
        return change_of_part("optimizer", optimizer, state)
    # torch makes new tensors and new groups, so that the old ones stay good and need no copy.
    before = dict(vars(optimizer))
    return Change("optimizer", lambda: optimizer.load_state_dict(state), lambda: vars(optimizer).update(before))


def change_of_part(name: str, part: Any, state: Any) -> Change:
    """Of a method, a scheduler or whatever else has a state dict."""
    before, attributes = copy.deepcopy(part.state_dict()), dict(vars(part))

    def put_back() -> None:
        part.load_state_dict(before)
        vars(part).update(attributes)  # what follows from the state of others, which were not put back yet

    return Change(name, lambda: part.load_state_dict(state), put_back)


def change_of_generator(state: Tensor) -> Change:
    before = torch.get_rng_state()
    return Change("generator", lambda: torch.set_rng_state(state), lambda: torch.set_rng_state(before))

