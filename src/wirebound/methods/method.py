"""What every method is: a step that reports what it did, and a state that can be kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn, optim

from wirebound import ops
from wirebound.methods.travel import travel_with_optimizer
from wirebound.nn.sparse_layer import wirings
from wirebound.ops.faults import not_finite
from wirebound.optim.adapter import Trained
from wirebound.optim.habits import Habits
from wirebound.optim.scaled import unscale_
from wirebound.wiring import LayerShape, Wiring, foreign
from wirebound.wiring.trust import is_plain


@dataclass(frozen=True)
class LayerInfo:
    """One layer after a step."""

    name: str
    active: int
    possible: int
    rewired: int


@dataclass(frozen=True)
class StepInfo:
    """What a step did. ``budget`` is None where a method promises none.

    ``shapes``, ``layer_active`` and ``layer_rewired`` run over the layers in the order of the model; ``layers`` has
    the same as one object for each layer.
    """

    step: int
    active: int
    budget: int | None
    rewired: int
    shapes: tuple[LayerShape, ...]
    layer_active: Sequence[int]
    layer_rewired: Sequence[int]

    @property
    def layers(self) -> list[LayerInfo]:
        rows = zip(self.shapes, self.layer_active, self.layer_rewired, strict=True)
        return [LayerInfo(shape.name, active, shape.possible, rewired) for shape, active, rewired in rows]


class Method(ABC):
    """A way to train a model with an optimiser; ``step()`` takes the place of ``optimizer.step()``."""

    model: nn.Module
    optimizer: optim.Optimizer
    shapes: tuple[LayerShape, ...]  # the matrices whose connections are counted
    steps: int  # steps taken so far
    plain: ClassVar[bool] = False  # trains the plain model, whose matrices are stored in full
    promises_budget: ClassVar[bool] = True  # exactly as many connections after every step as the wirings say
    # Which number of connections its results are held against where it promises no budget: the highest that it ever
    # had, or the one at the end.
    counts: ClassVar[str] = "final"
    counts_newborns: ClassVar[bool] = True  # reports every connection that comes to be, so deaths follow from it

    @abstractmethod
    def step(self) -> StepInfo:
        """One step of training from the gradients that ``backward`` left; call it instead of ``optimizer.step()``."""

    def zero_grad(self) -> None:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def layer_active(self) -> list[int]:
        """Connections of each layer now, in the order of ``shapes``."""
        return [n for wiring in wirings(self.model) for n in wiring.layer_active]

    def layer_positions(self) -> list[Tensor] | None:
        """Where the connections of each layer are, in the order of ``shapes``: sorted positions, counted down the
        columns of the layer, on the CPU. None where all possible connections are there."""
        found: list[Tensor] = []
        for wiring in wirings(self.model):
            positions = wiring.positions() if wiring.alive is None else wiring.positions()[wiring.alive]
            starts = torch.tensor(wiring.geometry.position_start, device=positions.device)
            bounds = torch.searchsorted(positions, starts).tolist()
            for first, last, start in zip(bounds, bounds[1:], wiring.geometry.position_start, strict=False):
                found.append((positions[first:last] - start).cpu())
        return found

    def holds(self) -> list[tuple[str, list[Tensor], str]]:
        """What it keeps beside model and optimiser, for the ledger: (part, tensors, how they come about)."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """What the next step needs beside the model's and the optimiser's own state."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])


class Claim:
    """The mark that a method leaves on the wirings that it steps; copies of a model and its method share a copy."""

    def __init__(self, method: str) -> None:
        self.method = method


class WiringMethod(Method):
    """A method on the wirings of a sparse model."""

    wirings: list[Wiring]

    def take(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        """Note the model, its wirings and its optimiser, if they fit together."""
        self.model, self.optimizer = model, optimizer
        self.wirings = require_wirings(type(self).__name__, model)
        require_parameters(optimizer, self.wirings)
        self.shapes = tuple(layer for wiring in self.wirings for layer in wiring.layers)
        self._habits = Habits(model, optimizer, self.wirings)

    def claim(self) -> None:
        """From now on this is the method that steps the wirings."""
        self._claim = Claim(type(self).__name__)
        for wiring in self.wirings:
            wiring.claim = self._claim
        travel_with_optimizer(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        travel_with_optimizer(self)  # a copy has a copied optimiser, without the hooks

    def has_claim(self) -> bool:
        """Whether no other method has taken a wiring over."""
        return all(wiring.claim is self._claim for wiring in self.wirings)

    def may_step(self) -> bool:
        """Whether there is a step to take; before anything is touched. An error if another method took over."""
        for wiring in self.wirings:
            if wiring.claim is not self._claim:
                by = wiring.claim.method if isinstance(wiring.claim, Claim) else "another method"
                mine = type(self).__name__
                raise RuntimeError(
                    f"this {mine} steps a wiring that a later {by} has taken over: step the {by} only, or make a new "
                    f"{mine} to go back to it"
                )
        self._habits.look()
        return unscale_(self.optimizer)

    def no_step(self) -> StepInfo:
        """The report of a step that was left out."""
        active = self.layer_active()
        budget = sum(w.budget for w in self.wirings) if self.promises_budget else None
        return StepInfo(self.steps, sum(active), budget, 0, self.shapes, active, [0] * len(active))


def require_wirings(method: str, model: nn.Module) -> list[Wiring]:
    """The wirings of a sparsified model, or an error that says what to do."""
    found = wirings(model)
    if not found:
        raise ValueError(f"{method} needs a sparse model, but model (={type(model).__name__}) has no sparse layer: "
                         "call wb.sparsify(model, ...) first")
    require_whole(method, model, found)
    for wiring in found:
        wiring.watch = None  # what a method before this one wanted to see would pile up
        foreign.go_alone(wiring)  # a copy that is trained is no copy any more
    return found


# By name: importing FSDP takes longer than all of wirebound.
_SHARDERS = ("FullyShardedDataParallel", "FSDPModule")


def require_whole(method: str, model: nn.Module, found: Sequence[Wiring]) -> None:
    """Every rank must hold all of θ, and the same wirings as the others."""
    for module in model.modules():
        sharder = next((kind.__name__ for kind in type(module).__mro__ if kind.__name__ in _SHARDERS), None)
        if sharder is not None and wirings(module):
            raise ValueError(
                f"{method} cannot train a model that {sharder} shards (fully_shard, FSDP): a wiring of K connections is "
                "whole on every rank. It is small; use DistributedDataParallel (wb.distributed.wrap)"
            )
    for wiring in found:
        wiring.examine_theta()
    if isinstance(model, nn.parallel.DistributedDataParallel):
        from wirebound import distributed  # which needs methods

        distributed.require_same_wirings(model)


@torch.no_grad()
def leave_valid(found: Sequence[Wiring]) -> None:
    """After a step that was interrupted or failed: who is below 0 is dormant where places may be empty, else at 0."""
    for wiring in found:
        if wiring.alive is not None:
            wiring.alive &= wiring.theta >= 0
            wiring.theta.masked_fill_(~wiring.alive, 0)
        elif wiring.sign_bound:
            wiring.theta.clamp_(min=0)


def require_finite(found: Sequence[Trained], step: int) -> None:
    """Refuse a step whose gradients of θ are not finite, before anything is moved: all stays as it was."""
    for trained in found:
        if isinstance(trained, Wiring):
            trained.examine_theta()
        if trained.theta.grad is not None and not ops.all_finite(_readable_gradient(trained.theta)):
            raise not_finite(step)


def _readable_gradient(theta: Tensor) -> Tensor:
    """The gradient of θ as kernels may read it; anyone may have set it."""
    grad = theta.grad
    assert grad is not None
    if grad.dtype is not theta.dtype or grad.device != theta.device or grad.layout is not torch.strided or not is_plain(grad):
        raise ValueError(
            f"the gradient of θ ({type(grad).__name__}, {grad.dtype}, {grad.layout} on {grad.device}) must be a plain dense "
            f"tensor of {theta.dtype} on {theta.device}, as θ is"
        )
    if grad.is_neg() or grad._is_zerotensor():  # its numbers are still to be made
        grad = theta.grad = grad.clone()
    return grad


def require_parameters(optimizer: optim.Optimizer, found: Sequence[Wiring]) -> None:
    """Every θ must be in the optimiser, or it would silently not be trained."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for wiring in found:
        if id(wiring.theta) not in held:
            names = ", ".join(layer.name for layer in wiring.layers)
            raise ValueError(
                f"optimizer (={type(optimizer).__name__}) lacks the parameter of the wiring over {names}: make it after "
                f"sparsify, from model.parameters() of a model with layer {wiring.layers[0].name!r}, which holds it"
            )
