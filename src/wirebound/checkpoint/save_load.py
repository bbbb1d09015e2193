"""``save`` and ``load``: everything that training needs to resume as if it had never stopped."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn, optim

from wirebound.checkpoint.container import CheckpointError, Container, write_container
from wirebound.checkpoint.method_state import check_method_state, steps_fault
from wirebound.checkpoint.model_state import bare, capture_model, read_model
from wirebound.checkpoint.optimizer_state import check_optimizer_state
from wirebound.checkpoint.stack import build_stack
from wirebound.checkpoint.tree import decode, difference, encode, number_fault
from wirebound.methods.attach import KEY, attached
from wirebound.methods.method import Method
from wirebound.nn.sparse_layer import wirings
from wirebound.version import __version__
from wirebound.wiring import Wiring

VERSION = 1  # of the format; docs/format.md
SECTIONS = ("model", "optimizer", "method", "scheduler", "random", "extra")


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
    path: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    method: Method | None = None,
    optimizer: optim.Optimizer | None = None,
    scheduler: Stateful | None = None,
    extra: Any = None,
    random_state: bool = True,
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
    document: dict[str, Any] = {
        "format": "wirebound",
        "version": VERSION,
        "writer": {"wirebound": __version__, "torch": torch.__version__},
        "steps": None if method is None else method.steps,
    }
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
    path: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    method: Method | None = None,
    optimizer: optim.Optimizer | None = None,
    scheduler: Stateful | None = None,
    random_state: bool | None = None,
) -> Checkpoint:
    """Put a checkpoint's state into the objects given, which must be made as they were for ``save``.

    Nothing in the file is executed. Everything is checked before the first object is touched, and if one of them
    fails to take its state all the same, each gets back what it had: all is loaded, or nothing. With no object given,
    the result still tells what the file holds.

    Args:
        path, model, method, optimizer, scheduler: as for ``save``; a method brings its model and optimiser.
        random_state: put torch's global CPU generator back too; by default where an optimiser is loaded.
    """
    model, optimizer, parts = _parts(model, method, optimizer, scheduler)
    if random_state is None:
        random_state = None if optimizer is not None else False
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
    """The model in a file, built from what the file says about it. Nothing in the file is executed.

    Raises ``CheckpointError`` for a file whose model is not a plain stack of modules that a file can name.
    """
    # fork_rng: torch's layers draw weights that are loaded over at once, and the generator is not ours to move.
    with Container(path) as file, torch.random.fork_rng(devices=[]):
        try:
            model = build_stack(_checked_document(file), file)
        except CheckpointError as error:
            raise CheckpointError(f"{path} cannot be loaded: {error}") from None
    load(path, model=model)
    return model


Part = tuple[str, Any, Callable[[Any], None]]  # the section of its state, the object, and the check of a state for it


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


class _Change(NamedTuple):
    """One object that is given state: its name, how, and how it gets back what it had."""

    name: str
    apply: Callable[[], Any]
    put_back: Callable[[], Any]


def _load(file: Container, model: nn.Module | None, parts: Sequence[Part], random_state: bool | None) -> Checkpoint:
    """``random_state`` None: if the file has one."""
    document, changes = _checked_document(file), list[_Change]()

    def section(name: str) -> Any:
        if name not in document:
            held = [section for section in SECTIONS if section in document]
            raise CheckpointError(f"it holds no {name}, only {', '.join(held) or 'nothing'}")
        return document[name]

    if model is not None:
        changes.append(_change_of_model(bare(model), read_model(section("model"), file.tensor, model)))
    for name, part, check in parts:
        found = section(name)
        if not isinstance(found, dict) or set(found) != {"type", "state"}:
            raise CheckpointError(f"{name} must have a type and a state")
        if found["type"] != type(part).__name__:
            raise CheckpointError(f"its {name} is {str(found['type'])[:40]}, here it is {type(part).__name__}")
        state = decode(found["state"], name, file.tensor)
        check(state)
        if name == "method" and state["steps"] != document["steps"]:
            raise CheckpointError(f"its steps (={document['steps']}) must be those of its method (={state['steps']})")
        changes.append(_change_of_part(name, part, state))
    if random_state or (random_state is None and "random" in document):
        found, before = _generator_state(decode(section("random"), "random", file.tensor)), torch.get_rng_state()
        changes.append(_Change("generator", partial(torch.set_rng_state, found), partial(torch.set_rng_state, before)))
    extra = decode(document.get("extra"), "extra", file.tensor)
    _apply_all(changes)
    sections = tuple(name for name in SECTIONS if name in document)
    return Checkpoint(file.path, sections, document["steps"], extra, document["version"], document["writer"])


def _checked_document(file: Container) -> dict[str, Any]:
    """The document, if it is one of a version that we read."""
    document = file.document
    if not isinstance(document, dict) or document.get("format") != "wirebound":
        raise CheckpointError("its document must be one of wirebound")
    version, steps, writer = document.get("version"), document.get("steps"), document.get("writer")
    if type(version) is not int or version < 1:
        raise CheckpointError(f"the version of its format (={str(version)[:20]!r}) must be a number >= 1")
    if version > VERSION:
        raise CheckpointError(f"its format has version {version}, we read up to {VERSION}: update wirebound")
    unknown = set(document) - {"format", "version", "writer", "steps", *SECTIONS}
    if unknown:
        raise CheckpointError(f"its document has unknown parts: {', '.join(sorted(unknown)[:5])}")
    if steps is not None and (fault := steps_fault(steps)):
        raise CheckpointError(fault)
    if not isinstance(writer, dict) or not all(isinstance(value, str) for value in writer.values()):
        raise CheckpointError("writer must be texts")
    return {**document, "steps": steps}


def _check_optimizer(state: Any, optimizer: optim.Optimizer, model: nn.Module | None) -> None:
    """Of an optimiser that carries a method, both are checked as if they had been kept by themselves."""
    thetas = [] if model is None else [wiring.theta for wiring in wirings(bare(model))]
    check_optimizer_state(state, optimizer, thetas)
    method = attached(optimizer)
    if method is not None and KEY in state:
        held, kind = state[KEY], type(method).__name__
        if not isinstance(held, dict) or set(held) != {"method", "state"} or held["method"] != kind:
            raise CheckpointError(f"optimizer/{KEY} must be the state of a method, {kind}")
        check_method_state(held["state"], method)


def _check_scheduler(state: Any, scheduler: Stateful) -> None:
    wrong = difference(scheduler.state_dict(), state, "scheduler")
    if not wrong and isinstance(scheduler, optim.lr_scheduler.LRScheduler):  # others may count as they like
        wrong = number_fault(state, "scheduler")
    if wrong:
        raise CheckpointError(wrong)


def _generator_state(state: Any) -> Tensor:
    wrong = difference({"torch": torch.get_rng_state()}, state, "random")
    if wrong:
        raise CheckpointError(wrong)
    found: Tensor = state["torch"]
    try:
        torch.Generator().set_state(found)
    except RuntimeError as error:
        raise CheckpointError(f"random/torch must be a state of torch's generator: {str(error)[:80]}") from None
    return found


def _apply_all(changes: Sequence[_Change]) -> None:
    """Apply the changes in their order; if one fails, or is interrupted, put back all and say why."""
    begun = ""
    try:
        for change in changes:
            begun = change.name
            change.apply()
    except BaseException as error:
        lost = []
        # The last first, because an object may have written to those before it. Those whose turn had not come too:
        # hooks of an optimiser may carry the state of its method.
        for change in reversed(changes):
            try:
                change.put_back()
            except Exception:
                lost.append(change.name)
        if not isinstance(error, Exception):
            raise
        after = f", and {', '.join(lost)} could not be put back" if lost else ": everything is as it was"
        reason = f"{type(error).__name__}: {str(error)[:200]}".replace("\n", " ")
        raise CheckpointError(f"the {begun} did not take its state ({reason}){after}") from error


def _change_of_model(model: nn.Module, state: dict[str, Any]) -> _Change:
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

    return _Change("model", lambda: model.load_state_dict(state), put_back)


def _change_of_part(name: str, part: Any, state: Any) -> _Change:
    """Of an optimiser, a method, a scheduler or whatever else has a state dict."""
    attributes = dict(vars(part))
    # torch's optimisers make new tensors and new groups, so that the old ones stay good and need no copy.
    renews = getattr(type(part), "load_state_dict", None) is optim.Optimizer.load_state_dict
    before = None if renews else copy.deepcopy(part.state_dict())

    def put_back() -> None:
        if not renews:
            part.load_state_dict(before)
        vars(part).update(attributes)  # what follows from the state of others, which were not put back yet

    return _Change(name, lambda: part.load_state_dict(state), put_back)
