"""What every method is: a declaration, a step that reports what it did, and a state that can be kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn, optim
from torch._C import _set_grad_enabled as set_grad_enabled

from wirebound import ops
from wirebound.methods.attach import Attachment, attachment, require_free
from wirebound.methods.declaration import RunLength, Setting
from wirebound.methods.habits import Habits
from wirebound.nn.sparse_layer import wirings
from wirebound.ops.faults import not_finite
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.rule import DriftAndNoise
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.optim.rule import Trained
from wirebound.wiring import LayerShape, Wiring, copies
from wirebound.wiring.trust import is_plain


@dataclass(frozen=True)
class LayerInfo:
    """One layer after a step."""

    name: str
    active: int
    possible: int
    rewired: int


class StepInfo(NamedTuple):
    """What a step did; ``layers`` has what it did to each layer."""

    step: int
    active: int
    budget: int | None  # None where a method promises none
    rewired: int
    shapes: tuple[LayerShape, ...]  # these three: of each layer, in the order of the model
    layer_active: Sequence[int]
    layer_rewired: Sequence[int]

    @property
    def layers(self) -> list[LayerInfo]:
        rows = zip(self.shapes, self.layer_active, self.layer_rewired, strict=True)
        return [LayerInfo(shape.name, active, shape.possible, rewired) for shape, active, rewired in rows]


class DeviceStepInfo(StepInfo):
    """What a step did on another device than the CPU: whoever reads a number of it waits for the device, nobody else does.

    A step that was not finite was not taken; that is said here, since the step itself has looked at nothing.
    """

    def _count(self, number: int | Tensor) -> int:
        if (found := int(number)) < 0:
            raise not_finite(self.step)
        return found

    @property
    def active(self) -> int:  # type: ignore[override]
        return sum(self.layer_active)

    @property
    def rewired(self) -> int:  # type: ignore[override]
        return sum(self.layer_rewired)

    @property
    def layer_active(self) -> Sequence[int]:  # type: ignore[override]
        return [self._count(n) for n in self[5]]

    @property
    def layer_rewired(self) -> Sequence[int]:  # type: ignore[override]
        return [self._count(n) for n in self[6]]

    def __repr__(self) -> str:
        numbers = f"step={self.step}, active={self.active}, budget={self.budget}, rewired={self.rewired}"
        return f"StepInfo({numbers}, shapes={self.shapes}, layer_active={self.layer_active}, layer_rewired={self.layer_rewired})"


class Method(ABC):
    """A way to train a model with an optimiser, whose own ``step`` is the whole step while the method is attached."""

    name: ClassVar[str]  # as the command line and settings files have it
    title: ClassVar[str]  # as a text has it
    settings: ClassVar[tuple[Setting, ...]] = ()
    sized_by: ClassVar[tuple[str, ...]] = ("connectivity", "budget")  # settings for the number of connections: one of them
    sized_beside: ClassVar[tuple[str, ...]] = ()  # which of them may be given together with another
    takes: ClassVar[tuple[str, ...]] = ()  # what its constructor also takes of a run, where it starts connections itself
    plain: ClassVar[bool] = False  # trains the plain model, whose matrices are stored in full
    promises_budget: ClassVar[bool] = True  # exactly as many connections after every step as the wirings say
    counts: ClassVar[str] = "final"  # without such a promise: the "highest" or "final" number is what results count
    rewires: ClassVar[bool] = True  # moves connections: some end and others begin elsewhere, in any layer of their wiring
    counts_newborns: ClassVar[bool] = True  # reports every connection that comes to be, so deaths follow from it

    model: nn.Module
    optimizer: optim.Optimizer
    shapes: tuple[LayerShape, ...]  # the matrices whose connections are counted
    steps: int = 0  # taken so far
    budget: int | None = None  # where it is promised
    info: StepInfo | None = None  # what the last step did
    adapter: OptimizerAdapter | None = None  # where the method moves θ itself
    _attached = False

    @classmethod
    def from_settings(
        cls, model: nn.Module, optimizer: optim.Optimizer, settings: Mapping[str, Any], length: RunLength
    ) -> Method:
        """The method that the settings of a run ask for; it ignores all but its own and those in ``cls.takes``."""
        return cls(model, optimizer, **cls.arguments(settings, length))  # type: ignore[call-arg]

    @classmethod
    def arguments(cls, settings: Mapping[str, Any], length: RunLength) -> dict[str, Any]:
        """The settings of a run as arguments of the constructor."""
        return {**{name: settings[name] for name in cls.takes if name in settings}, **cls.values(settings)}

    @classmethod
    def values(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all declared settings, by name: those given, else the defaults; each is checked."""
        found = {setting.name: settings.get(setting.name, setting.default) for setting in cls.settings}
        for setting in cls.settings:
            setting.check(found[setting.name])
        return found

    def attach(self) -> None:
        """Make the optimiser's step the method's; the last line of a constructor."""
        Attachment(self)
        self._attached = True

    def detach(self) -> None:
        """Give the plain optimiser back; to return to the method, make a new one."""
        found = attachment(self.optimizer)
        if found is not None and found.method is self:
            found.remove()
        self._attached = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._attached:  # a copy has a copied optimiser, which is a plain one
            Attachment(self)

    def step(self) -> StepInfo:
        """One step of training from the gradients that ``backward`` left; the same as ``optimizer.step()``."""
        if not self._attached:
            mine = type(self).__name__
            raise RuntimeError(f"this {mine} is detached from its optimiser: make a new {mine} to go back to it")
        self.optimizer.step()
        assert self.info is not None
        return self.info

    @abstractmethod
    def take_step(self) -> StepInfo:
        """What the optimiser's step does while the method is attached."""

    def zero_grad(self) -> None:
        for parameter in (p for group in self.optimizer.param_groups for p in group["params"]):
            parameter.grad = None
        self.forget_gradients()

    def forget_gradients(self) -> None:  # noqa: B027
        """Called when gradients are dropped."""

    def has_claim(self) -> bool:
        """Whether no other method has taken the connections over."""
        return True

    def report(self, active: Sequence[int], rewired: Sequence[int]) -> StepInfo:
        kinds = {*map(type, active), *map(type, rewired)}
        if kinds != {int} and any(issubclass(kind, Tensor) for kind in kinds):
            return DeviceStepInfo(self.steps, 0, self.budget, 0, self.shapes, active, rewired)
        return StepInfo(self.steps, sum(active), self.budget, sum(rewired), self.shapes, active, rewired)

    def layer_active(self) -> list[int]:
        """Connections of each layer now, in the order of ``shapes``."""
        return [n for wiring in wirings(self.model) for n in wiring.layer_active]

    def layer_positions(self) -> list[Tensor] | None:
        """Sorted positions of each layer's connections, counted down its columns, on the CPU; None where all are there."""
        found: list[Tensor] = []
        for wiring in wirings(self.model):
            positions, starts = wiring.positions(), wiring.geometry.position_start
            positions = positions if wiring.alive is None else positions[wiring.alive]
            bounds = torch.searchsorted(positions, torch.tensor(starts, device=positions.device)).tolist()
            found += [(positions[a:b] - start).cpu() for a, b, start in zip(bounds, bounds[1:], starts, strict=False)]
        return found

    def holds(self) -> list[tuple[str, list[Tensor], str]]:
        """What it keeps beside model and optimiser, for the ledger: (part, tensors, how they come about)."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """What the next step needs beside the model's and the optimiser's own state."""
        return {"steps": self.steps, **({} if self.adapter is None else self.adapter.ages())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.adapter is not None:
            load_rows("born", self.adapter.born, state["born"])
            self.adapter.load_updates(state)
        self.steps = int(state["steps"])


class Unbounded(Method):
    """A method without a budget, which remembers the most connections that it ever had: in all, and of each layer."""

    promises_budget = False

    def attach(self) -> None:
        self._most_of_layers: list[Any] = self.layer_active()
        self._most: Any = sum(self._most_of_layers)
        super().attach()

    @property
    def highest_active(self) -> int:
        return int(self._most)

    @property
    def highest_layer_active(self) -> list[int]:
        return [int(n) for n in self._most_of_layers]

    def report(self, active: Sequence[int], rewired: Sequence[int]) -> StepInfo:
        total = sum(active)
        if type(total) is int and type(self._most) is int:
            self._most, self._most_of_layers = max(self._most, total), list(map(max, self._most_of_layers, active))
        else:
            self._most = _larger(self._most, total)
            self._most_of_layers = [_larger(a, b) for a, b in zip(self._most_of_layers, active, strict=True)]
        return super().report(active, rewired)

    def state_dict(self) -> dict[str, Any]:
        highest = {"active": self.highest_active, "layers": self.highest_layer_active}
        return {**super().state_dict(), "highest": highest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        layers, mine = [int(n) for n in state["highest"]["layers"]], len(self.shapes)
        if len(layers) != mine:
            raise ValueError(f"state has highest counts of {len(layers)} layers, but the method has {mine}")
        super().load_state_dict(state)
        self._most, self._most_of_layers = int(state["highest"]["active"]), layers


def _larger(one: Any, other: Any) -> Any:
    """The larger of two counts; on a device it is not waited for."""
    if not isinstance(other, Tensor):
        return max(one, other)
    return torch.maximum(torch.as_tensor(one, device=other.device), other)


class WiringMethod(Method):
    """A method on the wirings of a sparse model; those with an adapter only say what happens to one wiring."""

    wirings: list[Wiring]

    def take(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        """Note the model, its wirings and its optimiser, if they fit together."""
        require_free(optimizer)
        self.model, self.optimizer = model, optimizer
        self.wirings = require_wirings(type(self).__name__, model)
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for wiring in self.wirings:
            if id(wiring.theta) not in held:  # it would silently not be trained
                names, kind = ", ".join(layer.name for layer in wiring.layers), type(optimizer).__name__
                source = f"from model.parameters() of a model with layer {wiring.layers[0].name!r}, which holds it"
                what_to_do = f"make it after sparsify, {source}"
                raise ValueError(f"optimizer (={kind}) lacks the parameter of the wiring over {names}: {what_to_do}")
        self.shapes = tuple(layer for wiring in self.wirings for layer in wiring.layers)
        self.budget = sum(wiring.budget for wiring in self.wirings) if self.promises_budget else None
        self._habits = Habits(model, optimizer, self.wirings)

    def attach(self) -> None:
        """From now on this is the method that steps the wirings."""
        super().attach()
        self._claim = SimpleNamespace(method=type(self).__name__)  # copies of a model and its method share a copy
        for wiring in self.wirings:
            wiring.claim = self._claim

    def detach(self) -> None:
        """Give the plain optimiser back: weights may cross zero from now on. For the method again, make a new one."""
        super().detach()
        for wiring in self.wirings:
            if wiring.claim is self._claim:
                wiring.claim = wiring.watch = wiring.seen = None
                wiring.release_signs_()

    def has_claim(self) -> bool:
        return all(wiring.claim is self._claim for wiring in self.wirings)

    def may_step(self) -> None:
        """Before anything is touched: an error if another method took over, a warning where torch is misunderstood."""
        for wiring in self.wirings:
            if wiring.claim is not self._claim:
                by, mine = getattr(wiring.claim, "method", "another method"), type(self).__name__
                what_to_do = f"step the {by} only, or detach() both and make a new {mine} to go back to it"
                raise RuntimeError(f"this {mine} steps a wiring that a later {by} has taken over: {what_to_do}")
        self._habits.look()

    def take_step(self) -> StepInfo:
        with_gradients = torch.is_grad_enabled()
        try:  # the decorator torch.no_grad() takes as long as the update of a small model
            set_grad_enabled(False)
            self.may_step()
            step = self.steps + 1
            require_finite(self.wirings, step)
            if self.adapter is not None:
                self.adapter.require_rates()
            try:
                active, rewired = self.train(step)
            except BaseException:  # an interrupt, or an error, between the update and the births
                leave_valid(self.wirings)
                raise
        finally:
            set_grad_enabled(with_gradients)
        self.steps = step
        return self.report(active, rewired)

    def train(self, step: int) -> tuple[list[int], list[int]]:
        """The optimiser's step for the rest of the model, then each wiring's; (active, newborns) of each layer."""
        assert self.adapter is not None
        self.adapter.step_torch(step)
        active: list[int] = []
        rewired: list[int] = []
        for number, wiring in enumerate(self.wirings):
            if wiring.theta.grad is None:  # not part of this loss: as torch does, leave it alone
                alive, born = wiring.active_counts(), [0] * len(wiring.layers)
            else:
                alive, born = self.step_wiring(number, wiring, step)
            active += alive
            rewired += born
        return active, rewired

    def step_wiring(self, number: int, wiring: Wiring, step: int) -> tuple[list[int], list[int]]:
        """Move the θ of one wiring and replace connections; (active, newborns) of each of its layers."""
        raise NotImplementedError

    def update(self, number: int, wiring: Wiring, drifts: Sequence[DriftAndNoise], step: int, *, clamp: bool) -> Tensor:
        """The optimiser's rule, pull and noise for the θ of one wiring; sorted indices of the dead, if any may die."""
        adapter, theta = self.adapter, wiring.theta
        assert adapter is not None
        group, noise = adapter.group(wiring), stream_of(Stream.NOISE, wiring.index)
        rule, state, bound = adapter.rule(number, group), adapter.state(number, group), wiring.sign_bound
        return ops.backend_of(theta).update_(
            theta.detach(), theta.grad, rule, state, drifts, wiring.seed, noise, step, sign_bound=bound, clamp=clamp
        )


def load_rows(name: str, mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    """Copy stored rows into those of a method, if they are as many and as long."""
    if [t.shape for t in theirs] != [m.shape for m in mine]:
        lengths = [t.numel() for t in theirs]
        raise ValueError(f"state has {name!r} of {lengths} connections, but the method keeps {[m.numel() for m in mine]}")
    for target, value in zip(mine, theirs, strict=True):
        target.copy_(value)


# What else is asked of a sparse model that a method is given.
model_checks: list[Callable[[nn.Module], None]] = []
# By name: importing FSDP takes longer than all of wirebound.
_SHARDERS = ("FullyShardedDataParallel", "FSDPModule")


def require_wirings(method: str, model: nn.Module) -> list[Wiring]:
    """The wirings of a sparsified model, whole and the same on every rank, or an error that says what to do."""
    found = wirings(model)
    if not found:
        without = f"model (={type(model).__name__}) has no sparse layer: call wb.sparsify(model, ...) first"
        raise ValueError(f"{method} needs a sparse model, but {without}")
    for module in model.modules():
        sharder = next((kind.__name__ for kind in type(module).__mro__ if kind.__name__ in _SHARDERS), None)
        if sharder is not None and wirings(module):
            why = "a wiring of K connections is whole on every rank; use DistributedDataParallel (wb.distributed.wrap)"
            raise ValueError(f"{method} cannot train a model that {sharder} shards (fully_shard, FSDP): {why}")
    for wiring in found:
        wiring.examine_theta()
    for check in model_checks:
        check(model)
    for wiring in found:
        wiring.watch = wiring.seen = None  # what a method before this one wanted to see would pile up
        copies.go_alone(wiring)  # a copy that is trained is no copy any more
    return found


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
        theta = trained.theta
        grad = theta.grad
        if grad is None:
            continue
        alike = grad.dtype is theta.dtype and grad.device == theta.device and grad.layout is torch.strided
        if not alike or not (is_plain(grad) or type(grad) is type(theta)):  # anyone may have set it
            found_kind = f"{type(grad).__name__}, {grad.dtype}, {grad.layout} on {grad.device}"
            wanted = f"a plain dense tensor of {theta.dtype} on {theta.device}, as θ is"
            raise ValueError(f"the gradient of θ ({found_kind}) must be {wanted}")
        if grad.is_neg() or grad._is_zerotensor():  # its numbers are still to be made
            grad = theta.grad = grad.clone()
        if not ops.backend_of(theta).all_finite(grad):
            raise not_finite(step)
