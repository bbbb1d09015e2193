"""``save`` and ``load``: everything that training needs to resume as if it had never stopped."""

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn, optim

from wirebound.checkpoint.container import CheckpointError, Container, require, write_container
from wirebound.checkpoint.model_state import bare, capture_model, read_model
from wirebound.checkpoint.stack import build_stack
from wirebound.checkpoint.training_state import check_method_state, check_optimizer_state, check_steps
from wirebound.checkpoint.tree import check_like, check_numbers, decode, encode
from wirebound.methods.attach import KEY, attached
from wirebound.methods.method import Method
from wirebound.nn.sparse_layer import wirings
from wirebound.version import __version__
from wirebound.wiring import Wiring

VERSION = 1  # of the format; docs/format.md
SECTIONS = ("model", "optimizer", "method", "scheduler", "random", "extra")
Part = tuple[str, Any, Callable[[Any], None]]  # the section of its state, the object, and the check of a state for it
Change = tuple[str, Callable[[], Any], Callable[[], Any]]  # an object: its name, give it state, give back what it had


class Stateful(Protocol):
    """What a scheduler is here: anything with a state dict."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says beside the state that was loaded."""

    path: Path
    sections: tuple[str, ...]  # what it holds
    steps: int | None  # steps that the method had taken
    extra: Any  # what the caller of save gave
    version: int
    writer: dict[str, str]


def save(
    path: str | os.PathLike[str], *, model: nn.Module | None = None, method: Method | None = None,
    optimizer: optim.Optimizer | None = None, scheduler: Stateful | None = None, extra: Any = None, random_state: bool = True
) -> None:
    """Write one file with everything that training needs to resume, atomically: a crash leaves the old one whole.

    Args:
        path: the file, by custom ``*.safetensors``. Its size is O(K).
        model: any model; by default the method's.
        method: its counters and ages, and its optimiser.
        optimizer: only where there is no method.
        scheduler: a torch lr scheduler, or anything with a state dict.
        extra: whatever else you need: nested dicts, lists, tuples, numbers, texts and tensors.
        random_state: keep the state of torch's global CPU generator, which dropout and shuffling use.
    """
    model, optimizer, parts = _parts(model, method, optimizer, scheduler)
    tensors: dict[str, Tensor] = {}
    writer = {"wirebound": __version__, "torch": torch.__version__}
    document: dict[str, Any] = {"format": "wirebound", "version": VERSION, "writer": writer}
    document["steps"] = None if method is None else method.steps
    if model is not None:
        document["model"] = capture_model(model, tensors)
    for name, part, check in parts:
        state = part.state_dict()
        try:
            check(state)  # what could not be loaded is not written: the file that was there before is worth more
        except CheckpointError as error:
            raise CheckpointError(f"{error}: nothing was written") from None
        if name == "optimizer" and method is not None:  # which is kept beside it
            state = {key: value for key, value in state.items() if key != KEY}
        document[name] = {"type": type(part).__name__, "state": encode(state, name, tensors)}
    if random_state and optimizer is not None:
        document["random"] = encode({"torch": torch.get_rng_state()}, "random", tensors)
    if extra is not None:
        document["extra"] = encode(extra, "extra", tensors)
    write_container(Path(path), tensors, document)


def load(
    path: str | os.PathLike[str], *, model: nn.Module | None = None, method: Method | None = None,
    optimizer: optim.Optimizer | None = None, scheduler: Stateful | None = None, random_state: bool | None = None
) -> Checkpoint:
    """Put a checkpoint's state into the objects given, which must be made as they were for ``save``.

    Nothing in the file is executed. Everything is checked before the first object is touched, and if one of them
    fails to take its state all the same, each gets back what it had. With no object, the result tells what the file holds.

    Args:
        path, model, method, optimizer, scheduler: as for ``save``; a method brings its model and optimiser.
        random_state: put torch's global CPU generator back too; by default where an optimiser is loaded.
    """
    model, optimizer, parts = _parts(model, method, optimizer, scheduler)
    if random_state is None:
        random_state = None if optimizer is not None else False  # None: if the file has one
    with Container(Path(path)) as file:
        try:
            return _load(file, model, parts, random_state)
        except CheckpointError as error:
            raise CheckpointError(f"{path} cannot be loaded: {error}") from error.__cause__
        except RecursionError:
            raise CheckpointError(f"{path} cannot be loaded: its values are nested too deeply") from None


def holds_stack(path: Path) -> bool:
    """Whether a file says which network it holds."""
    with Container(path) as file:
        model = _checked_document(file).get("model")
    return isinstance(model, dict) and "stack" in model


def load_model(path: Path) -> nn.Module:
    """The model in a file that says it is a plain stack of modules; nothing in the file is executed."""
    # fork_rng: torch's layers draw weights that are loaded over at once, and the generator is not ours to move.
    with Container(path) as file, torch.random.fork_rng(devices=[]):
        try:
            model = build_stack(_checked_document(file), file)
        except CheckpointError as error:
            raise CheckpointError(f"{path} cannot be loaded: {error}") from None
    load(path, model=model)
    return model


def _parts(
    model: nn.Module | None, method: Method | None, optimizer: optim.Optimizer | None, scheduler: Stateful | None
) -> tuple[nn.Module | None, optim.Optimizer | None, list[Part]]:
    if method is not None:
        if optimizer is not None and optimizer is not method.optimizer:
            raise ValueError("give method or optimizer, not both: the method brings its own")
        model, optimizer = method.model if model is None else model, method.optimizer
    parts: list[Part] = []
    if optimizer is not None:
        parts.append(("optimizer", optimizer, partial(_check_optimizer, optimizer=optimizer, model=model)))
    if method is not None:
        parts.append(("method", method, partial(check_method_state, method=method)))
    if scheduler is not None:
        parts.append(("scheduler", scheduler, partial(_check_scheduler, scheduler=scheduler)))
    return model, optimizer, parts


def _load(file: Container, model: nn.Module | None, parts: Sequence[Part], random_state: bool | None) -> Checkpoint:
    document, changes = _checked_document(file), list[Change]()

    def section(name: str) -> Any:
        if name not in document:
            held = [section for section in SECTIONS if section in document]
            raise CheckpointError(f"it holds no {name}, only {', '.join(held) or 'nothing'}")
        return document[name]

    if model is not None:
        changes.append(_change_of_model(bare(model), read_model(section("model"), file.tensor, model)))
    for name, part, check in parts:
        found = section(name)
        require(isinstance(found, dict) and set(found) == {"type", "state"}, f"{name} must have a type and a state")
        kind, here = str(found["type"])[:40], type(part).__name__
        require(found["type"] == here, f"its {name} is {kind}, here it is {here}")
        state = decode(found["state"], name, file.tensor)
        check(state)
        if name == "method":
            same = state["steps"] == document["steps"]
            require(same, f"its steps (={document['steps']}) must be those of its method (={state['steps']})")
        changes.append(_change_of_part(name, part, state))
    if random_state or (random_state is None and "random" in document):
        state, before = decode(section("random"), "random", file.tensor), torch.get_rng_state()
        check_like({"torch": before}, state, "random")
        try:
            torch.Generator().set_state(state["torch"])
        except RuntimeError as error:
            raise CheckpointError(f"random/torch must be a state of torch's generator: {str(error)[:80]}") from None
        changes.append(("generator", partial(torch.set_rng_state, state["torch"]), partial(torch.set_rng_state, before)))
    extra = decode(document.get("extra"), "extra", file.tensor)
    _apply_all(changes)
    sections = tuple(name for name in SECTIONS if name in document)
    return Checkpoint(file.path, sections, document["steps"], extra, document["version"], document["writer"])


def _checked_document(file: Container) -> dict[str, Any]:
    document = file.document
    known = isinstance(document, dict) and document.get("format") == "wirebound"
    require(known, "its document must be one of wirebound")
    version, steps, writer = document.get("version"), document.get("steps"), document.get("writer")
    known = type(version) is int and version >= 1
    require(known, f"the version of its format (={str(version)[:20]!r}) must be a number >= 1")
    require(version <= VERSION, f"its format has version {version}, we read up to {VERSION}: update wirebound")
    unknown = set(document) - {"format", "version", "writer", "steps", *SECTIONS}
    require(not unknown, f"its document has unknown parts: {', '.join(sorted(unknown)[:5])}")
    if steps is not None:
        check_steps(steps)
    texts = isinstance(writer, dict) and all(isinstance(value, str) for value in writer.values())
    require(texts, "writer must be texts")
    return {**document, "steps": steps}


def _check_optimizer(state: Any, optimizer: optim.Optimizer, model: nn.Module | None) -> None:
    """Of an optimiser that carries a method, both are checked as if they had been kept by themselves."""
    thetas = [] if model is None else [wiring.theta for wiring in wirings(bare(model))]
    check_optimizer_state(state, optimizer, thetas)
    method = attached(optimizer)
    if method is not None and KEY in state:
        held, kind = state[KEY], type(method).__name__
        fits = isinstance(held, dict) and set(held) == {"method", "state"} and held["method"] == kind
        require(fits, f"optimizer/{KEY} must be the state of a method, {kind}")
        check_method_state(held["state"], method)


def _check_scheduler(state: Any, scheduler: Stateful) -> None:
    check_like(scheduler.state_dict(), state, "scheduler")
    if isinstance(scheduler, optim.lr_scheduler.LRScheduler):  # others may count as they like
        check_numbers(state, "scheduler")


def _apply_all(changes: Sequence[Change]) -> None:
    """Apply the changes in their order; if one fails, or is interrupted, put back all and say why."""
    begun = ""
    try:
        for name, apply, _ in changes:
            begun = name
            apply()
    except BaseException as error:
        lost = []
        # The last first, because an object may have written to those before it. Those whose turn had not come too:
        # hooks of an optimiser may carry the state of its method.
        for name, _, put_back in reversed(changes):
            try:
                put_back()
            except Exception:
                lost.append(name)
        if not isinstance(error, Exception):
            raise
        after = f", and {', '.join(lost)} could not be put back" if lost else ": everything is as it was"
        reason = f"{type(error).__name__}: {str(error)[:200]}".replace("\n", " ")
        raise CheckpointError(f"the {begun} did not take its state ({reason}){after}") from error


def _change_of_model(model: nn.Module, state: dict[str, Any]) -> Change:
    """Its tensors are put back one by one, past the hooks of users, which may be what failed."""
    tensors = [(tensor, tensor.detach().clone()) for tensor in (*model.parameters(), *model.buffers())]
    with_extra = [m for m in model.modules() if type(m).get_extra_state is not nn.Module.get_extra_state]
    extra = [(module, copy.deepcopy(module.get_extra_state())) for module in with_extra]
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

    return "model", lambda: model.load_state_dict(state), put_back


def _change_of_part(name: str, part: Any, state: Any) -> Change:
    attributes = dict(vars(part))
    # torch's optimisers make new tensors and new groups, so that the old ones stay good and need no copy.
    renews = getattr(type(part), "load_state_dict", None) is optim.Optimizer.load_state_dict
    before = None if renews else copy.deepcopy(part.state_dict())

    def put_back() -> None:
        if not renews:
            part.load_state_dict(before)
        vars(part).update(attributes)  # what follows from the state of others, which were not put back yet

    return name, lambda: part.load_state_dict(state), put_back
